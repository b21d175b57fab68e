
/*
 * Sends an interim response with the client's version of HTTP.
 *
 * Uses: v1, v2 and v3.
 */


#include "ngx_http_interim.h"


/* NGX_DECLINED: not sent; other code handles a broken connection */

ngx_int_t
ngx_http_interim_send(ngx_http_request_t *r, ngx_http_interim_t *interim)
{
    ngx_http_request_t  *mr;

    mr = r->main;

    if (mr->header_sent
        || mr->http_version < NGX_HTTP_VERSION_11
        || mr->post_action
        || r->background
        || mr->connection->error)
    {
        return NGX_DECLINED;
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, mr->connection->log, 0,
                   "http interim response %ui, fields:%ui",
                   interim->status, interim->nfields);

    if (mr->http_version < NGX_HTTP_VERSION_20) {
        return ngx_http_interim_send_v1(mr, interim);
    }

#if (NGX_HTTP_V2)
    if (mr->stream) {
        return ngx_http_interim_send_v2(mr, interim);
    }
#endif

#if (NGX_HTTP_V3)
    if (mr->http_version == NGX_HTTP_VERSION_30) {
        return ngx_http_interim_send_v3(mr, interim);
    }
#endif

    return NGX_DECLINED;
}
