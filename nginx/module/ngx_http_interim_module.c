
/*
 * Interim (1xx) responses from FastCGI responders, persistent connections to
 * them, and content that is written to their files: the directives, and the
 * selection of requests.
 *
 * Uses: upstream, lane and keep (their hooks), v2 (its filter) and request.
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
#if (NGX_THREADS)
static ngx_thread_pool_t *ngx_http_interim_own_pool(ngx_conf_t *cf);
#endif
static ngx_int_t ngx_http_interim_init(ngx_conf_t *cf);


#if (NGX_THREADS)
extern ngx_module_t  ngx_thread_pool_module;
#endif


static ngx_command_t  ngx_http_interim_commands[] = {

    { ngx_string("interim_responses"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_1MORE,
      ngx_http_interim_responses,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
      NULL },

    { ngx_string("spool_receive"),
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF|NGX_CONF_TAKE1,
      ngx_http_interim_spool_receive,
      NGX_HTTP_LOC_CONF_OFFSET,
      0,
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

    if (conf->receive == NGX_CONF_UNSET) {
        conf->receive = (prev->receive == NGX_CONF_UNSET) ? 0 : prev->receive;
#if (NGX_THREADS)
        conf->pool = prev->pool;
#endif
    }

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
            return "combines \"off\" with statuses";
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
            return "cannot forward 101, which ends HTTP on the connection";
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


/*
 * The directive may be in an included file and also next to the include: then
 * one "off" is enough, otherwise the last value is used.
 */

static char *
ngx_http_interim_spool_receive(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_interim_loc_conf_t *ilcf = conf;

    ngx_str_t          *value;
    ngx_flag_t          receive;
#if (NGX_THREADS)
    ngx_str_t           name;
    ngx_thread_pool_t  *pool;
#endif

    value = cf->args->elts;
    value++;

    receive = 1;

#if (NGX_THREADS)
    pool = NULL;
#endif

    if (ngx_strcasecmp(value->data, (u_char *) "off") == 0) {
        receive = 0;

    } else if (ngx_strcasecmp(value->data, (u_char *) "on") == 0) {
#if (NGX_THREADS)
        pool = ngx_http_interim_own_pool(cf);
        if (pool == NULL) {
            return NGX_CONF_ERROR;
        }
#else
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "\"spool_receive on\" is ignored: nginx was built "
                           "without --with-threads");
        receive = 0;
#endif

    } else if (ngx_strcmp(value->data, "threads") == 0
               || (ngx_strncmp(value->data, "threads=", 8) == 0
                   && value->len > 8))
    {
#if (NGX_THREADS)
        ngx_str_null(&name);

        if (value->len > 8) {
            name.len = value->len - 8;
            name.data = value->data + 8;
        }

        pool = ngx_thread_pool_add(cf, name.len ? &name : NULL);
        if (pool == NULL) {
            return NGX_CONF_ERROR;
        }
#else
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"spool_receive %V\" needs an nginx that was built "
                           "--with-threads", value);
        return NGX_CONF_ERROR;
#endif

    } else if (ngx_strcmp(value->data, "worker") != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid value \"%V\" of \"spool_receive\", "
                           "it must be \"on\", \"off\", \"worker\" or "
                           "\"threads[=pool]\"",
                           value);
        return NGX_CONF_ERROR;
    }

    if (ilcf->receive == 0) {
        return NGX_CONF_OK;
    }

    ilcf->receive = receive;
#if (NGX_THREADS)
    ilcf->pool = pool;
#endif

    return NGX_CONF_OK;
}


#if (NGX_THREADS)

/*
 * Returns the pool "spool_receive".  Unless the main context defines it above
 * http, it is created as by "thread_pool spool_receive threads=16;", because
 * nginx has no other way to set the size of a pool.  No other code uses this
 * pool, so no other code waits if a disk stalls all of its threads.
 */

static ngx_thread_pool_t *
ngx_http_interim_own_pool(ngx_conf_t *cf)
{
    char               *rv;
    ngx_str_t          *value;
    ngx_array_t        *args, words;
    ngx_command_t      *cmd;
    ngx_thread_pool_t  *pool;

    static ngx_str_t  name = ngx_string("spool_receive");

    pool = ngx_thread_pool_get(cf->cycle, &name);

    if (pool) {
        return pool;
    }

    if (ngx_array_init(&words, cf->temp_pool, 3, sizeof(ngx_str_t)) != NGX_OK) {
        return NULL;
    }

    value = ngx_array_push_n(&words, 3);

    ngx_str_set(&value[0], "thread_pool");
    value[1] = name;
    ngx_str_set(&value[2], "threads=16");

    for (cmd = ngx_thread_pool_module.commands; cmd->name.len; cmd++) {

        if (cmd->name.len != value[0].len
            || ngx_strcmp(cmd->name.data, value[0].data) != 0)
        {
            continue;
        }

        args = cf->args;
        cf->args = &words;

        rv = cmd->set(cf, cmd, NULL);

        cf->args = args;

        return (rv == NGX_CONF_OK) ? ngx_thread_pool_get(cf->cycle, &name)
                                   : NULL;
    }

    return NULL;
}

#endif


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
