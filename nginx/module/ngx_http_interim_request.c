
/*
 * The module's state of a request, and the statuses that its location forwards.
 *
 * Uses only nginx.
 */


#include "ngx_http_interim.h"


ngx_http_interim_ctx_t *
ngx_http_interim_get_ctx(ngx_http_request_t *r)
{
    ngx_http_interim_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);

    if (ctx == NULL) {
        ctx = ngx_pcalloc(r->pool, sizeof(ngx_http_interim_ctx_t));
        if (ctx == NULL) {
            return NULL;
        }

        ngx_http_set_ctx(r, ctx, ngx_http_interim_module);
    }

    return ctx;
}


/* whether the location forwards the status; 0: whether it forwards any */

ngx_uint_t
ngx_http_interim_passes(ngx_http_request_t *r, ngx_uint_t status)
{
    ngx_http_interim_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_interim_module);

    if (status == 0) {
        return (ilcf->statuses[0] | ilcf->statuses[1] | ilcf->statuses[2]
                | ilcf->statuses[3]) != 0;
    }

    status -= 100;

    return (ilcf->statuses[status / 32] >> (status % 32)) & 1;
}
