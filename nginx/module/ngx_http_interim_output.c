
/*
 * The buffer of bytes for the client, and its writing.
 *
 * Each request has one buffer.  While it waits for a client that does not read,
 * newer interim responses are dropped: memory is bounded, and the responder
 * soon repeats the newest state.
 *
 * Uses: request.
 */


#include "ngx_http_interim.h"


static void ngx_http_interim_writer(ngx_http_request_t *r);


/* NULL until the previous interim response is written */

ngx_http_interim_output_t *
ngx_http_interim_output(ngx_http_request_t *r, size_t size)
{
    ngx_buf_t                  *b;
    ngx_http_interim_ctx_t     *ctx;
    ngx_http_interim_output_t  *out;

    /* the main request of a subrequest may not have a context yet */

    ctx = ngx_http_interim_get_ctx(r);
    if (ctx == NULL) {
        return NULL;
    }

    out = ctx->output;

    if (out == NULL) {
        out = ngx_pcalloc(r->pool, sizeof(ngx_http_interim_output_t));
        if (out == NULL) {
            return NULL;
        }

        out->chain.buf = &out->buf;
        out->buf.temporary = 1;
        out->buf.flush = 1;
        out->buf.tag = (ngx_buf_tag_t) &ngx_http_interim_module;

        ctx->output = out;
    }

    b = &out->buf;

    if (b->pos != b->last) {
        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "http interim response dropped, the client is slow");
        return NULL;
    }

    if ((size_t) (b->end - b->start) < size) {

        /* at least doubled, which bounds the memory of all old buffers */

        size = ngx_max(size, 2 * (size_t) (b->end - b->start));

        b->start = ngx_pnalloc(r->pool, size);
        if (b->start == NULL) {
            b->pos = b->last = b->end = NULL;
            return NULL;
        }

        b->end = b->start + size;
    }

    b->pos = b->start;
    b->last = b->start;

    return out;
}


ngx_int_t
ngx_http_interim_write(ngx_http_request_t *r, ngx_http_interim_output_t *out)
{
    ngx_connection_t          *c;
    ngx_http_core_loc_conf_t  *clcf;

    c = r->connection;
    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->tcp_nodelay && ngx_tcp_nodelay(c) != NGX_OK) {
        return NGX_DECLINED;
    }

    if (ngx_http_write_filter(r, &out->chain) == NGX_ERROR) {
        return NGX_DECLINED;
    }

    if (c->buffered == 0 || r->write_event_handler == ngx_http_interim_writer) {
        return NGX_OK;
    }

    /* sends the rest, until the final response takes over */

    out->write_event_handler = r->write_event_handler;
    r->write_event_handler = ngx_http_interim_writer;

    (void) ngx_handle_write_event(c->write, 0);

    return NGX_OK;
}


static void
ngx_http_interim_writer(ngx_http_request_t *r)
{
    ngx_connection_t           *c;
    ngx_http_interim_ctx_t     *ctx;
    ngx_http_event_handler_pt   handler;

    c = r->connection;

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);
    handler = ctx->output->write_event_handler;

    ngx_log_debug0(NGX_LOG_DEBUG_HTTP, c->log, 0, "http interim writer");

    if (!c->error && (r->out || (c->buffered & NGX_LOWLEVEL_BUFFERED))) {
        (void) ngx_http_write_filter(r, NULL);
    }

    if (c->error || c->buffered == 0) {
        r->write_event_handler = handler;

    } else {
        (void) ngx_handle_write_event(c->write, 0);
    }

    /* the request may have been waiting for this event */

    handler(r);
}
