
/*
 * The hooks between nginx and its FastCGI module.
 *
 * The module wraps the content handler of a request and, when the FastCGI
 * module has created its upstream, u->process_header.  Everything except
 * interim responses reaches the FastCGI module unchanged.
 *
 * Uses: lane, keep, records, parse, send, refuse and request.
 */


#include "ngx_http_interim.h"


static void ngx_http_interim_hook(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx);
static ngx_uint_t ngx_http_interim_client_waits(ngx_http_request_t *r);
static void ngx_http_interim_expect(ngx_http_request_t *r);
static ngx_int_t ngx_http_interim_process_header(ngx_http_request_t *r);
static ngx_int_t ngx_http_interim_process_final(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx);
static void ngx_http_interim_pass(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx, ngx_str_t *block);
static ngx_int_t ngx_http_interim_reinit_request(ngx_http_request_t *r);


ngx_int_t
ngx_http_interim_handler(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_uint_t               waits;
    ngx_http_interim_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);

    waits = ngx_http_interim_passes(r, NGX_HTTP_CONTINUE)
            && ngx_http_interim_client_waits(r);

    if (waits) {
        /* nginx must not send 100 before the responder does */
        r->expect_tested = 1;
    }

    rc = ctx->handler(r);

    if (rc != NGX_DONE) {
        return rc;
    }

    /*
     * If the upstream could not be started, error_page may have redirected the
     * request to another location, which does not have this context.
     */

    if (ngx_http_get_module_ctx(r, ngx_http_interim_module) == ctx) {
        ngx_http_interim_hook(r, ctx);
    }

    if (waits) {
        ngx_http_interim_expect(r);
    }

    return rc;
}


static void
ngx_http_interim_hook(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    if (u == NULL
        || u->output.tag != (ngx_buf_tag_t) &ngx_http_fastcgi_module
        || u->process_header == ngx_http_interim_process_header)
    {
        return;
    }

    ctx->process_header = u->process_header;
    u->process_header = ngx_http_interim_process_header;

    ctx->reinit_request = u->reinit_request;
    u->reinit_request = ngx_http_interim_reinit_request;
}


static ngx_uint_t
ngx_http_interim_client_waits(ngx_http_request_t *r)
{
    ngx_str_t  *expect;

    if (r != r->main
        || r->expect_tested
        || r->headers_in.expect == NULL
        || r->http_version < NGX_HTTP_VERSION_11)
    {
        return 0;
    }

    expect = &r->headers_in.expect->value;

    return expect->len == sizeof("100-continue") - 1
           && ngx_strncasecmp(expect->data, (u_char *) "100-continue",
                              sizeof("100-continue") - 1)
              == 0;
}


static void
ngx_http_interim_expect(ngx_http_request_t *r)
{
    ngx_http_interim_t       interim;
    ngx_http_interim_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);

    if (ctx
        && r->upstream
        && r->upstream->process_header == ngx_http_interim_process_header
        && r->request_body_no_buffering)
    {
        ctx->expect = 1;
        return;
    }

    /* nginx itself must request this content, except over HTTP/2 */

    if (r->request_body == NULL
        || r->request_body->rest == 0
        || r->http_version >= NGX_HTTP_VERSION_20)
    {
        return;
    }

    interim.status = NGX_HTTP_CONTINUE;
    ngx_str_set(&interim.reason, "Continue");
    interim.nfields = 0;

    (void) ngx_http_interim_send(r, &interim);
}


static ngx_int_t
ngx_http_interim_process_header(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_str_t                block;
    ngx_http_interim_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);

    if (ctx->final
#if (NGX_HTTP_CACHE)
        || r->cached
#endif
       )
    {
        return ngx_http_interim_process_final(r, ctx);
    }

    for ( ;; ) {
        rc = ngx_http_interim_find(r, ctx, &block);

        if (rc == NGX_OK) {
            ngx_http_interim_pass(r, ctx, &block);
            ngx_http_interim_cut(r, ctx, &block);
            continue;
        }

        if (rc == NGX_DONE) {
            rc = ngx_http_interim_lane_answer(r, ctx, &block);

            if (rc == NGX_DECLINED) {
                ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                              "upstream sent invalid message about content");
            }

            if (rc != NGX_OK) {
                return NGX_HTTP_UPSTREAM_INVALID_HEADER;
            }

            ngx_http_interim_cut(r, ctx, &block);
            continue;
        }

        if (rc == NGX_DECLINED) {
            ctx->final = 1;
            return ngx_http_interim_process_final(r, ctx);
        }

        return rc;
    }
}


static ngx_int_t
ngx_http_interim_process_final(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx)
{
    ngx_int_t             rc;
    ngx_http_upstream_t  *u;

    rc = ctx->process_header(r);

    u = r->upstream;

    if (rc != NGX_OK) {
        if (u->buffer.last == ngx_http_interim_start(r)) {
            /* reset within a large STDERR record */
            ctx->torn = 1;
        }

        return rc;
    }

    if (ctx->interim
        && u->headers_in.status_n >= 100
        && u->headers_in.status_n < 200)
    {
        ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                      "upstream sent interim response %ui that "
                      "cannot be distinguished from a final one",
                      u->headers_in.status_n);

        return NGX_HTTP_UPSTREAM_INVALID_HEADER;
    }

    ngx_http_interim_refuse(r, ctx);
    ngx_http_interim_keep(r, ctx);

    return NGX_OK;
}


static void
ngx_http_interim_pass(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx,
    ngx_str_t *block)
{
    ngx_connection_t    *pc;
    ngx_http_interim_t   interim;

    pc = r->upstream->peer.connection;

    if (pc->read->timer_set) {
        /* a responder that sends data is alive */
        ngx_add_timer(pc->read, r->upstream->conf->read_timeout);
    }

    if (ngx_http_interim_parse(r, block, &interim) != NGX_OK) {
        return;
    }

    if (!ngx_http_interim_passes(r, interim.status)) {
        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "http interim response %ui is not forwarded",
                       interim.status);
        return;
    }

    if (interim.status == NGX_HTTP_CONTINUE) {
        if (!ctx->expect) {
            return;
        }

        ctx->expect = 0;
    }

    (void) ngx_http_interim_send(r, &interim);
}


static ngx_int_t
ngx_http_interim_reinit_request(ngx_http_request_t *r)
{
    ngx_http_interim_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);

    ctx->final = !ctx->interim && ctx->lane == NULL;
    ctx->torn = 0;
    ctx->padding = 0;
    ctx->stderr_rest = 0;

    return ctx->reinit_request(r);
}
