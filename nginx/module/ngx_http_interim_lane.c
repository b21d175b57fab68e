
/*
 * The lane: the module writes content directly into a file of the responder,
 * so that the content does not cross a socket.
 *
 * The module sends an offer after the parameters, and holds content until the
 * responder grants a file with a limit, or declines: then content is sent as
 * usual.  The module reports the number of bytes written.  Messages are
 * records of type FCGI_DATA, in both directions.
 *
 * The filter of the request body wraps u->create_request: at that point the
 * FastCGI module has created its upstream but not used it.  The wrapper of
 * u->create_request wraps u->output.output_filter, which receives all content
 * before it becomes records.  The wrapper of u->finalize_request closes the
 * file at the latest: it runs before the connection is closed, and long before
 * the pool is destroyed.
 *
 * Uses: lane_threads, lane_write and request.
 */


#include "ngx_http_interim_lane.h"


#define NGX_HTTP_INTERIM_DATA         8
#define NGX_HTTP_INTERIM_LANE_VERSION 1

#define NGX_HTTP_INTERIM_OFFER        1
#define NGX_HTTP_INTERIM_COUNT        2
#define NGX_HTTP_INTERIM_END          3

#define NGX_HTTP_INTERIM_GRANT        1
#define NGX_HTTP_INTERIM_DECLINE      2
#define NGX_HTTP_INTERIM_WINDOW       3
#define NGX_HTTP_INTERIM_STOP         4

#define NGX_HTTP_INTERIM_REST         1

/* the least content that is worth the round trip */
#define NGX_HTTP_INTERIM_LANE_MIN     (256 * 1024)

/* bytes between two counts; bytes if a second has passed; seconds */
#define NGX_HTTP_INTERIM_COUNT_SIZE   (4 * 1024 * 1024)
#define NGX_HTTP_INTERIM_COUNT_SLOW   (1024 * 1024)
#define NGX_HTTP_INTERIM_COUNT_TIME   5


static ngx_int_t ngx_http_interim_lane_body_filter(ngx_http_request_t *r,
    ngx_chain_t *in);
static ngx_int_t ngx_http_interim_lane_create_request(ngx_http_request_t *r);
static void ngx_http_interim_lane_finalize_request(ngx_http_request_t *r,
    ngx_int_t rc);
static ngx_http_interim_lane_t *ngx_http_interim_lane_find(
    ngx_http_request_t *r);
static void ngx_http_interim_lane_save(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane);
static void ngx_http_interim_lane_cleanup(void *data);
static void ngx_http_interim_lane_terminate(void *data);
static ngx_int_t ngx_http_interim_lane_filter(void *data, ngx_chain_t *in);
static ngx_int_t ngx_http_interim_lane_start(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane, ngx_buf_t *head);
static ngx_int_t ngx_http_interim_lane_hold(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane, ngx_chain_t *in);
static ngx_int_t ngx_http_interim_lane_pass(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane);
static ngx_int_t ngx_http_interim_lane_write(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane);
static ngx_int_t ngx_http_interim_lane_end(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane);
static ngx_int_t ngx_http_interim_lane_send(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane, ngx_uint_t kind, ngx_err_t err);
static ssize_t ngx_http_interim_lane_recv(ngx_connection_t *c, u_char *buf,
    size_t size);
static void ngx_http_interim_lane_take(ngx_http_interim_lane_t *lane,
    struct msghdr *msg);
static void ngx_http_interim_lane_leave(ngx_http_interim_lane_t *lane);
static u_char *ngx_http_interim_lane_put(u_char *p, uint64_t value,
    ngx_uint_t bytes);
static uint64_t ngx_http_interim_lane_get(u_char *p);


static ngx_http_request_body_filter_pt  ngx_http_interim_next_body_filter;


void
ngx_http_interim_init_lane(void)
{
    ngx_http_interim_next_body_filter = ngx_http_top_request_body_filter;
    ngx_http_top_request_body_filter = ngx_http_interim_lane_body_filter;
}


static ngx_int_t
ngx_http_interim_lane_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_http_cleanup_t           *hcln;
    ngx_pool_cleanup_t           *cln;
    ngx_http_upstream_t          *u;
    ngx_http_interim_ctx_t       *ctx;
    ngx_http_interim_lane_t      *lane;
#if (NGX_THREADS)
    ngx_http_interim_loc_conf_t  *ilcf;
#endif

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);
    u = r->upstream;

    if (ctx == NULL
        || !ctx->receive
        || ctx->lane
        || u == NULL
        || u->output.tag != (ngx_buf_tag_t) &ngx_http_fastcgi_module
        || u->create_request == NULL
        || !r->request_body_no_buffering
        || (r->headers_in.content_length
            && r->headers_in.content_length_n <= NGX_HTTP_INTERIM_LANE_MIN))
    {
        return ngx_http_interim_next_body_filter(r, in);
    }

    lane = ngx_pcalloc(r->pool, sizeof(ngx_http_interim_lane_t));
    if (lane == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    lane->request = r;
    lane->upstream = u;
    lane->passed = NGX_INVALID_FILE;
    lane->fd = NGX_INVALID_FILE;
    lane->last_held = &lane->held;

#if (NGX_THREADS)

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_interim_module);

    if (ilcf->pool
        && ngx_http_interim_lane_use_threads(lane, ilcf->pool) != NGX_OK)
    {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

#endif

    hcln = ngx_http_cleanup_add(r, 0);
    if (hcln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    hcln->handler = ngx_http_interim_lane_terminate;
    hcln->data = lane;

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln->handler = ngx_http_interim_lane_cleanup;
    cln->data = lane;

    lane->create_request = u->create_request;
    u->create_request = ngx_http_interim_lane_create_request;

    lane->finalize_request = u->finalize_request;
    u->finalize_request = ngx_http_interim_lane_finalize_request;

    ctx->lane = lane;
    ctx->final = 0;

    return ngx_http_interim_next_body_filter(r, in);
}


static ngx_int_t
ngx_http_interim_lane_create_request(ngx_http_request_t *r)
{
    ngx_int_t                 rc;
    ngx_http_upstream_t      *u;
    ngx_http_interim_ctx_t   *ctx;
    ngx_http_interim_lane_t  *lane;

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);
    lane = ctx->lane;

    rc = lane->create_request(r);

    u = r->upstream;

    if (rc == NGX_OK && lane->filter == NULL && u->output.output_filter) {
        lane->filter = u->output.output_filter;
        u->output.output_filter = ngx_http_interim_lane_filter;
    }

    return rc;
}


/* from here on, no message is sent */

static void
ngx_http_interim_lane_finalize_request(ngx_http_request_t *r, ngx_int_t rc)
{
    ngx_http_interim_lane_t  *lane;

    lane = ngx_http_interim_lane_find(r);

    if (lane == NULL) {
        return;
    }

    ngx_http_interim_lane_leave(lane);

    if (lane->state == ngx_http_interim_lane_granted && r->connection->error) {
        ngx_http_interim_lane_save(r, lane);
    }

#if (NGX_THREADS)

    if (lane->task) {
        ngx_http_interim_lane_detach(lane);
        lane->finalize_request(r, rc);
        return;
    }

#endif

    lane->finalized = 1;

    ngx_http_interim_lane_write_all(lane);
    ngx_http_interim_lane_cleanup(lane);

    lane->finalize_request(r, rc);
}


/*
 * Returns the lane of the upstream that is being finalized.  r->ctx may already
 * be cleared and r->upstream replaced, if a header filter has switched to an
 * error page (ngx_http_filter_finalize_request).  A lane that has not sent an
 * offer has no file to close, so it is the last choice.
 */

static ngx_http_interim_lane_t *
ngx_http_interim_lane_find(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t       *cln;
    ngx_http_interim_lane_t  *lane, *found;

    found = NULL;

    for (cln = r->pool->cleanup; cln; cln = cln->next) {

        if (cln->handler != ngx_http_interim_lane_cleanup) {
            continue;
        }

        lane = cln->data;

        if (lane->finalized || lane->upstream->cleanup) {
            continue;
        }

        if (found == NULL || lane->state != ngx_http_interim_lane_new) {
            found = lane;
        }
    }

    return found;
}


/* the client disconnected: keeps content that nginx has read and would drop */

static void
ngx_http_interim_lane_save(ngx_http_request_t *r, ngx_http_interim_lane_t *lane)
{
    ngx_http_request_body_t  *rb;
#if (NGX_HTTP_V2)
    off_t                     size;
    ngx_buf_t                *b;
    ngx_chain_t               raw;
#endif

    rb = r->request_body;

    if (rb == NULL || ngx_http_interim_lane_hold(r, lane, rb->bufs) != NGX_OK) {
        return;
    }

#if (NGX_HTTP_V2)

    /* content of received frames that is not processed yet */

    if (r->stream && rb->buf) {
        size = rb->received + (rb->buf->last - rb->buf->pos);

        /* a later frame extends rb->buf, so it cannot be held itself */

        b = ngx_calloc_buf(r->pool);
        if (b == NULL) {
            return;
        }

        b->temporary = 1;
        b->pos = rb->buf->pos;
        b->last = rb->buf->last;

        raw.buf = b;
        raw.next = NULL;

        if (r->headers_in.content_length_n == -1
            || size <= r->headers_in.content_length_n)
        {
            (void) ngx_http_interim_lane_hold(r, lane, &raw);
        }
    }

#endif
}


static void
ngx_http_interim_lane_cleanup(void *data)
{
    ngx_http_interim_lane_t  *lane = data;

    ngx_http_interim_lane_leave(lane);
    ngx_http_interim_lane_close(&lane->passed);
    ngx_http_interim_lane_close(&lane->fd);
}


static void
ngx_http_interim_lane_terminate(void *data)
{
    ngx_http_interim_lane_t  *lane = data;

    lane->terminated = 1;
}


/*
 * Replaces the FastCGI module's filter of content.  Returns NGX_AGAIN while
 * content is held, so that nginx does not read more than fits into its buffer.
 */

static ngx_int_t
ngx_http_interim_lane_filter(void *data, ngx_chain_t *in)
{
    ngx_http_request_t *r = data;

    ngx_int_t                 rc;
    ngx_http_interim_ctx_t   *ctx;
    ngx_http_interim_lane_t  *lane;

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);
    lane = ctx->lane;

    if (lane->state == ngx_http_interim_lane_over
        && lane->held == NULL
        && !lane->last)
    {
        return lane->filter(r, in);
    }

    if (lane->state == ngx_http_interim_lane_new) {

        if (in == NULL
            || r->upstream->peer.sockaddr->sa_family != AF_UNIX)
        {
            lane->state = ngx_http_interim_lane_over;
            return lane->filter(r, in);
        }

        rc = ngx_http_interim_lane_start(r, lane, in->buf);
        if (rc == NGX_ERROR) {
            return NGX_ERROR;
        }

        in = in->next;
    }

    if (ngx_http_interim_lane_hold(r, lane, in) != NGX_OK
        || ngx_chain_writer(&r->upstream->writer, NULL) == NGX_ERROR)
    {
        return NGX_ERROR;
    }

    if (lane->state == ngx_http_interim_lane_granted
        && ngx_http_interim_lane_write(r, lane) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (lane->state == ngx_http_interim_lane_over) {
        return ngx_http_interim_lane_pass(r, lane);
    }

    rc = ngx_chain_writer(&r->upstream->writer, NULL);

    if (rc == NGX_ERROR) {
        return NGX_ERROR;
    }

    return (lane->held || lane->last || lane->working
            || lane->state == ngx_http_interim_lane_stopped) ? NGX_AGAIN : rc;
}


/* sends the request's head and the offer */

static ngx_int_t
ngx_http_interim_lane_start(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane, ngx_buf_t *head)
{
    ngx_chain_t        first;
    ngx_connection_t  *c;

    first.buf = head;
    first.next = NULL;

    if (lane->filter(r, &first) == NGX_ERROR) {
        return NGX_ERROR;
    }

    c = r->upstream->peer.connection;

    lane->connection = c;
    lane->recv = c->recv;
    c->recv = ngx_http_interim_lane_recv;

    lane->state = ngx_http_interim_lane_offered;

    return ngx_http_interim_lane_send(r, lane, NGX_HTTP_INTERIM_OFFER, 0);
}


static ngx_int_t
ngx_http_interim_lane_hold(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane, ngx_chain_t *in)
{
    ngx_chain_t  *cl;

    for ( /* void */ ; in; in = in->next) {

        if (in->buf->last_buf) {
            lane->last = 1;
        }

        if (ngx_buf_special(in->buf)) {
            continue;
        }

        cl = ngx_alloc_chain_link(r->pool);
        if (cl == NULL) {
            return NGX_ERROR;
        }

        cl->buf = in->buf;
        cl->next = NULL;

        *lane->last_held = cl;
        lane->last_held = &cl->next;
    }

    return NGX_OK;
}


/* passes held content to the FastCGI module */

static ngx_int_t
ngx_http_interim_lane_pass(ngx_http_request_t *r, ngx_http_interim_lane_t *lane)
{
    ngx_buf_t    *b;
    ngx_int_t     rc;
    ngx_chain_t  *cl, *ln;

    if (lane->last) {

        /* the buffer with last_buf may already be written */

        b = ngx_calloc_buf(r->pool);
        cl = ngx_alloc_chain_link(r->pool);

        if (b == NULL || cl == NULL) {
            return NGX_ERROR;
        }

        b->last_buf = 1;
        cl->buf = b;
        cl->next = NULL;

        *lane->last_held = cl;
        lane->last = 0;

        for (ln = lane->held; ln != cl; ln = ln->next) {
            ln->buf->last_buf = 0;
        }
    }

    ln = lane->held;

    lane->held = NULL;
    lane->last_held = &lane->held;

    rc = lane->filter(r, ln);

    for ( /* void */ ; ln; ln = cl) {
        cl = ln->next;
        ngx_free_chain(r->pool, ln);
    }

    return rc;
}


/* writes held content up to the limit, and sends a count or the end */

static ngx_int_t
ngx_http_interim_lane_write(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane)
{
    off_t   size;
    time_t  elapsed;

#if (NGX_THREADS)

    if (lane->task) {
        ngx_http_interim_lane_post(lane);

    } else {
        ngx_http_interim_lane_write_all(lane);
    }

#else

    ngx_http_interim_lane_write_all(lane);

#endif

    if (lane->fd == NGX_INVALID_FILE) {
        return ngx_http_interim_lane_end(r, lane);
    }

    /* only one count waits for a responder that does not read */

    if (lane->count == lane->told || r->upstream->writer.out) {
        return NGX_OK;
    }

    size = lane->count - lane->told;
    elapsed = ngx_time() - lane->told_at;

    if (size >= NGX_HTTP_INTERIM_COUNT_SIZE
        || (size >= NGX_HTTP_INTERIM_COUNT_SLOW && elapsed > 0)
        || elapsed >= NGX_HTTP_INTERIM_COUNT_TIME
        || lane->count == lane->limit)
    {
        return ngx_http_interim_lane_send(r, lane, NGX_HTTP_INTERIM_COUNT, 0);
    }

    return NGX_OK;
}


/* sends the end, after the file is closed */

static ngx_int_t
ngx_http_interim_lane_end(ngx_http_request_t *r, ngx_http_interim_lane_t *lane)
{
    ngx_http_interim_lane_leave(lane);

    lane->state = (lane->err || lane->stop) ? ngx_http_interim_lane_stopped
                                            : ngx_http_interim_lane_over;

    return ngx_http_interim_lane_send(r, lane, NGX_HTTP_INTERIM_END, lane->err);
}


static ngx_int_t
ngx_http_interim_lane_send(ngx_http_request_t *r,
    ngx_http_interim_lane_t *lane, ngx_uint_t kind, ngx_err_t err)
{
    u_char       *p;
    ngx_buf_t    *b;
    ngx_int_t     rc;
    ngx_chain_t  *cl;

    cl = ngx_chain_get_free_buf(r->pool, &lane->free);
    if (cl == NULL) {
        return NGX_ERROR;
    }

    b = cl->buf;

    if (b->start == NULL) {
        b->start = ngx_palloc(r->pool, NGX_HTTP_INTERIM_LANE_RECORD);
        if (b->start == NULL) {
            return NGX_ERROR;
        }

        b->end = b->start + NGX_HTTP_INTERIM_LANE_RECORD;
    }

    b->tag = (ngx_buf_tag_t) &ngx_http_interim_init_lane;
    b->temporary = 1;
    b->flush = 1;
    b->pos = b->start;

    p = b->start;

    *p++ = 1;
    *p++ = NGX_HTTP_INTERIM_DATA;
    p = ngx_http_interim_lane_put(p, 1, 2);
    p = ngx_http_interim_lane_put(p, NGX_HTTP_INTERIM_LANE_SIZE, 2);
    p = ngx_http_interim_lane_put(p, 0, 2);

    *p++ = (u_char) kind;
    *p++ = NGX_HTTP_INTERIM_LANE_VERSION;
    p = ngx_http_interim_lane_put(p, 0, 2);
    p = ngx_http_interim_lane_put(p, err, 4);
    p = ngx_http_interim_lane_put(p, lane->count, 8);
    b->last = ngx_http_interim_lane_put(p, 0, 8);

    lane->told = lane->count;
    lane->told_at = ngx_time();

    rc = ngx_chain_writer(&r->upstream->writer, cl);

    ngx_chain_update_chains(r->pool, &lane->free, &lane->busy, &cl, b->tag);

    return (rc == NGX_ERROR) ? NGX_ERROR : NGX_OK;
}


/*
 * Processes a message of the responder.  NGX_DECLINED: the message is invalid,
 * or not allowed in this state; NGX_ERROR: nginx's own message could not be
 * sent.
 */

ngx_int_t
ngx_http_interim_lane_answer(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx, ngx_str_t *message)
{
    off_t                     offset, limit;
    u_char                   *p;
    ngx_uint_t                kind;
    ngx_connection_t         *c;
    ngx_http_interim_lane_t  *lane;

    lane = ctx->lane;
    p = message->data;

    if (lane == NULL
        || lane->bad
        || message->len != NGX_HTTP_INTERIM_LANE_SIZE
        || p[1] != NGX_HTTP_INTERIM_LANE_VERSION
        || (p[2] & ~NGX_HTTP_INTERIM_REST)
        || p[3] || p[4] || p[5] || p[6] || p[7])
    {
        return NGX_DECLINED;
    }

    kind = p[0];
    offset = (off_t) ngx_http_interim_lane_get(p + 8);
    limit = (off_t) ngx_http_interim_lane_get(p + 16);

    if (offset < 0 || limit < 0) {
        return NGX_DECLINED;
    }

    c = r->upstream->peer.connection;

    ngx_log_debug3(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "http interim lane: %ui, limit %O, state %d",
                   kind, limit, (int) lane->state);

    switch (lane->state) {

    case ngx_http_interim_lane_offered:

        if (kind == NGX_HTTP_INTERIM_DECLINE
            && lane->passed == NGX_INVALID_FILE)
        {
            ngx_http_interim_lane_leave(lane);
            lane->state = ngx_http_interim_lane_over;
            break;
        }

        if (kind != NGX_HTTP_INTERIM_GRANT) {
            return NGX_DECLINED;
        }

        lane->state = ngx_http_interim_lane_granted;
        lane->offset = offset;
        lane->limit = limit;
        lane->rest = p[2] & NGX_HTTP_INTERIM_REST;
        lane->told_at = ngx_time();

        lane->fd = lane->passed;
        lane->passed = NGX_INVALID_FILE;

        if (lane->fd == NGX_INVALID_FILE) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "upstream granted no file");

            lane->err = NGX_EINVAL;

            return ngx_http_interim_lane_end(r, lane);
        }

        break;

    case ngx_http_interim_lane_granted:

        if (kind == NGX_HTTP_INTERIM_STOP) {
            lane->stop = 1;
            return ngx_http_interim_lane_write(r, lane);
        }

        if (kind != NGX_HTTP_INTERIM_WINDOW || limit < lane->limit) {
            return NGX_DECLINED;
        }

        lane->limit = limit;
        lane->rest = p[2] & NGX_HTTP_INTERIM_REST;

        break;

    case ngx_http_interim_lane_stopped:
    case ngx_http_interim_lane_over:

        /* it may have been sent before the responder received the end */

        if (kind == NGX_HTTP_INTERIM_WINDOW || kind == NGX_HTTP_INTERIM_STOP) {
            return NGX_OK;
        }

        return NGX_DECLINED;

    default:
        return NGX_DECLINED;
    }

    /* held content can be processed now */

    ngx_post_event(c->write, &ngx_posted_events);

    return NGX_OK;
}


/* receives data, and takes descriptors from the control messages */

static ssize_t
ngx_http_interim_lane_recv(ngx_connection_t *c, u_char *buf, size_t size)
{
    ssize_t                   n;
    ngx_err_t                 err;
    ngx_event_t              *rev;
    struct iovec              iov;
    struct msghdr             msg;
    ngx_http_request_t       *r;
    ngx_http_interim_ctx_t   *ctx;

    union {
        struct cmsghdr        head;
        u_char                space[CMSG_SPACE(sizeof(int) * 4)];
    } control;

    rev = c->read;
    r = c->data;
    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);

    do {
        ngx_memzero(&msg, sizeof(struct msghdr));

        iov.iov_base = buf;
        iov.iov_len = size;

        msg.msg_iov = &iov;
        msg.msg_iovlen = 1;
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);

        n = recvmsg(c->fd, &msg, MSG_CMSG_CLOEXEC);
        err = (n == -1) ? ngx_errno : 0;

    } while (err == NGX_EINTR);

    if (n > 0) {
        ngx_http_interim_lane_take(ctx->lane, &msg);
        return n;
    }

    rev->ready = 0;

    if (n == 0) {
        rev->eof = 1;
        return 0;
    }

    if (err == NGX_EAGAIN) {
        return NGX_AGAIN;
    }

    rev->error = 1;

    return ngx_connection_error(c, err, "recvmsg() failed");
}


static void
ngx_http_interim_lane_take(ngx_http_interim_lane_t *lane, struct msghdr *msg)
{
    int              fd;
    size_t           i, n;
    struct cmsghdr  *cmsg;

    for (cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {

        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS) {
            continue;
        }

        n = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (i = 0; i < n; i++) {
            ngx_memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));

            if (lane->passed == NGX_INVALID_FILE
                && lane->state == ngx_http_interim_lane_offered)
            {
                lane->passed = fd;
                continue;
            }

            lane->bad = 1;
            (void) close(fd);
        }
    }
}


/* restores the connection's recv() */

static void
ngx_http_interim_lane_leave(ngx_http_interim_lane_t *lane)
{
    if (lane->connection) {
        lane->connection->recv = lane->recv;
        lane->connection = NULL;
    }
}


static u_char *
ngx_http_interim_lane_put(u_char *p, uint64_t value, ngx_uint_t bytes)
{
    while (bytes--) {
        *p++ = (u_char) (value >> (8 * bytes));
    }

    return p;
}


static uint64_t
ngx_http_interim_lane_get(u_char *p)
{
    uint64_t    value;
    ngx_uint_t  i;

    value = 0;

    for (i = 0; i < 8; i++) {
        value = (value << 8) | p[i];
    }

    return value;
}
