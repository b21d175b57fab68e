
/*
 * Interim (1xx) responses from FastCGI responders, connections to them that
 * are kept, and content that is written for them: the directives, and the
 * requests that the module is for.
 *
 * Below: upstream, lane and keep (their hooks), v2 (its filter) and request.
 */


#include "ngx_http_interim.h"


static ngx_int_t ngx_http_interim_precontent_handler(ngx_http_request_t *r);

static void *ngx_http_interim_create_srv_conf(ngx_conf_t *cf);
static void *ngx_http_interim_create_loc_conf(ngx_conf_t *cf);
static char *ngx_http_interim_merge_loc_conf(ngx_conf_t *cf, void *parent,
    void *child);
static char *ngx_http_interim_responses(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static char *ngx_http_interim_spool_receive(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
static ngx_int_t ngx_http_interim_init(ngx_conf_t *cf);


static ngx_command_t  ngx_http_interim_commands[] = {

    { ngx_string("interim_responses"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_interim_responses,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("spool_receive"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_FLAG,
      ngx_http_interim_spool_receive,
      NGX_HTTP_LOC_CONF_OFFSET,
      offsetof(ngx_http_interim_loc_conf_t, receive),
      NULL },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_interim_module_ctx = {
    NULL,                                  /* preconfiguration */
    ngx_http_interim_init,                 /* postconfiguration */

    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */

    ngx_http_interim_create_srv_conf,      /* create server configuration */
    NULL,                                  /* merge server configuration */

    ngx_http_interim_create_loc_conf,      /* create location configuration */
    ngx_http_interim_merge_loc_conf        /* merge location configuration */
};


ngx_module_t  ngx_http_interim_module = {
    NGX_MODULE_V1,
    &ngx_http_interim_module_ctx,          /* module context */
    ngx_http_interim_commands,             /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static ngx_int_t
ngx_http_interim_precontent_handler(ngx_http_request_t *r)
{
    ngx_uint_t                    interim, keep, receive;
    ngx_http_interim_ctx_t       *ctx;
    ngx_http_interim_loc_conf_t  *ilcf;

    ilcf = ngx_http_get_module_loc_conf(r, ngx_http_interim_module);

    interim = ngx_http_interim_passes(r, 0);
    keep = ngx_http_interim_keeps(r);
    receive = ilcf->receive && r == r->main;

    if ((!interim && !keep && !receive)
        || r->content_handler == NULL
        || r->content_handler == ngx_http_interim_handler)
    {
        return NGX_DECLINED;
    }

    ctx = ngx_http_interim_get_ctx(r);
    if (ctx == NULL) {
        return NGX_ERROR;
    }

    ctx->interim = interim;
    ctx->keep = keep;
    ctx->receive = receive;
    ctx->final = !interim;

    ctx->handler = r->content_handler;
    r->content_handler = ngx_http_interim_handler;

    return NGX_DECLINED;
}


static void *
ngx_http_interim_create_srv_conf(ngx_conf_t *cf)
{
    return ngx_pcalloc(cf->pool, sizeof(ngx_http_interim_srv_conf_t));
}


static void *
ngx_http_interim_create_loc_conf(ngx_conf_t *cf)
{
    ngx_http_interim_loc_conf_t  *ilcf;

    ilcf = ngx_pcalloc(cf->pool, sizeof(ngx_http_interim_loc_conf_t));
    if (ilcf == NULL) {
        return NULL;
    }

    /*
     * set by ngx_pcalloc():
     *
     *     ilcf->statuses = { 0 };
     */

    ilcf->set = NGX_CONF_UNSET;
    ilcf->receive = NGX_CONF_UNSET;

    return ilcf;
}


static char *
ngx_http_interim_merge_loc_conf(ngx_conf_t *cf, void *parent, void *child)
{
    ngx_http_interim_loc_conf_t *prev = parent;
    ngx_http_interim_loc_conf_t *conf = child;

    if (conf->set == NGX_CONF_UNSET) {
        conf->set = prev->set;
        ngx_memcpy(conf->statuses, prev->statuses, sizeof(conf->statuses));
    }

    ngx_conf_merge_value(conf->receive, prev->receive, 0);

    return NGX_CONF_OK;
}


static char *
ngx_http_interim_responses(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_interim_loc_conf_t *ilcf = conf;

    uint32_t    *word, bit;
    ngx_int_t    status;
    ngx_str_t   *value;
    ngx_uint_t   i;

    if (ilcf->set != NGX_CONF_UNSET) {
        return "is duplicate";
    }

    ilcf->set = 1;

    value = cf->args->elts;

    if (ngx_strcmp(value[1].data, "off") == 0) {
        if (cf->args->nelts > 2) {
            return "has statuses beside \"off\"";
        }

        return NGX_CONF_OK;
    }

    for (i = 1; i < cf->args->nelts; i++) {

        status = ngx_atoi(value[i].data, value[i].len);

        if (value[i].len != 3 || status < 100 || status > 199) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "invalid interim status \"%V\", "
                               "it must be between 100 and 199",
                               &value[i]);
            return NGX_CONF_ERROR;
        }

        if (status == NGX_HTTP_SWITCHING_PROTOCOLS) {
            return "cannot pass on 101, which ends HTTP on a connection";
        }

        status -= 100;
        word = &ilcf->statuses[status / 32];
        bit = (uint32_t) 1 << (status % 32);

        if (*word & bit) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate interim status \"%V\"", &value[i]);
            return NGX_CONF_ERROR;
        }

        *word |= bit;
    }

    return NGX_CONF_OK;
}


/* may stand in an include and beside it: there one "off" is enough */

static char *
ngx_http_interim_spool_receive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_interim_loc_conf_t *ilcf = conf;

    char        *rv;
    ngx_flag_t   before;

    before = ilcf->receive;
    ilcf->receive = NGX_CONF_UNSET;

    rv = ngx_conf_set_flag_slot(cf, cmd, conf);

    if (before == 0) {
        ilcf->receive = 0;
    }

    return rv;
}


static ngx_int_t
ngx_http_interim_init(ngx_conf_t *cf)
{
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_interim_precontent_handler;

    ngx_http_interim_init_lane();

#if (NGX_HTTP_V2)
    ngx_http_interim_init_v2();
#endif

    return ngx_http_interim_init_keep(cf);
}
