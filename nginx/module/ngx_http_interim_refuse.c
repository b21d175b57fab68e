
/*
 * The end of a refused request with much unread content.
 *
 * Over HTTP/1.x nginx reads and discards the rest of such a request, for up to
 * lingering_time.  This part prevents that: the response has "Connection:
 * close", and the connection stays open for a moment, so that the reset that
 * follows does not overtake the response.  Meanwhile the full receive buffer
 * stops the client.
 *
 * Over HTTP/2 and HTTP/3 nginx itself ends the stream after the response.
 *
 * Uses only nginx.
 */


#include "ngx_http_interim.h"


/* unread bytes that nginx may read and discard */
#define NGX_HTTP_INTERIM_UNREAD  (1024 * 1024)

/* milliseconds for the response to reach the client */
#define NGX_HTTP_INTERIM_LINGER  2000

/* milliseconds between checks whether the responder has ended its request */
#define NGX_HTTP_INTERIM_LOOK    200


typedef struct {
    ngx_http_request_t   *request;
    ngx_http_upstream_t  *upstream;
    ngx_event_t           event;
    unsigned              ended:1;
} ngx_http_interim_refusal_t;


static ngx_uint_t ngx_http_interim_leaves_much(ngx_http_request_t *r);
static void ngx_http_interim_refuse_handler(ngx_event_t *ev);
static void ngx_http_interim_refuse_cleanup(void *data);


/*
 * Called for each final response, before its head is sent.  The responder may
 * need content until it ends its request; after that, nginx reads no more.
 */

void
ngx_http_interim_refuse(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx)
{
    ngx_http_cleanup_t          *cln;
    ngx_http_interim_refusal_t  *refusal;

    if (r->upstream->headers_in.status_n < NGX_HTTP_BAD_REQUEST
        || ctx->refused
        || !ngx_http_interim_leaves_much(r))
    {
        return;
    }

    cln = ngx_http_cleanup_add(r, sizeof(ngx_http_interim_refusal_t));
    if (cln == NULL) {
        return;
    }

    refusal = cln->data;
    ngx_memzero(refusal, sizeof(ngx_http_interim_refusal_t));

    refusal->request = r;
    refusal->upstream = r->upstream;

    refusal->event.handler = ngx_http_interim_refuse_handler;
    refusal->event.data = refusal;
    refusal->event.log = r->connection->log;

    cln->handler = ngx_http_interim_refuse_cleanup;

    ctx->refused = 1;
    r->keepalive = 0;

    /* the request stays until the last timer expires */

    r->count++;
    ngx_add_timer(&refusal->event, NGX_HTTP_INTERIM_LOOK);
}


/* the size of chunked content is unknown */

static ngx_uint_t
ngx_http_interim_leaves_much(ngx_http_request_t *r)
{
    return r == r->main
           && r->http_version < NGX_HTTP_VERSION_20
           && r->reading_body
           && r->request_body
           && (r->headers_in.chunked
               || r->request_body->rest > NGX_HTTP_INTERIM_UNREAD);
}


static void
ngx_http_interim_refuse_handler(ngx_event_t *ev)
{
    ngx_connection_t            *c;
    ngx_http_request_t          *r;
    ngx_http_interim_refusal_t  *refusal;

    refusal = ev->data;
    r = refusal->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    if (!refusal->ended) {

        if (refusal->upstream->cleanup) {
            ngx_add_timer(ev, NGX_HTTP_INTERIM_LOOK);
            return;
        }

        refusal->ended = 1;
        ngx_add_timer(ev, NGX_HTTP_INTERIM_LINGER);
        return;
    }

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, c->log, 0,
                   "http interim: the rest of the content is not read");

    /* nginx ends its side and closes the connection without reading */

    r->lingering_time = ngx_time();
    c->read->ready = 1;

    ngx_http_finalize_request(r, NGX_DONE);
    ngx_http_run_posted_requests(c);
}


static void
ngx_http_interim_refuse_cleanup(void *data)
{
    ngx_http_interim_refusal_t *refusal = data;

    if (refusal->event.timer_set) {
        ngx_del_timer(&refusal->event);
    }
}
