
/*
 * Persistent connections to responders (fastcgi_keep_conn on, keepalive in the
 * upstream block).
 *
 * nginx closes a connection if it has not read END_REQUEST, because a response
 * without content (to HEAD; 204, 304) ends with its header.  This part keeps
 * the connection if the rest of the response was read together with the header.
 *
 * A kept connection may be dead.  nginx detects that only with the connection's
 * next event, and a request sent before that is lost.  Therefore the connection
 * is checked before it is used: if it is readable or at its end, a new one is
 * opened instead.
 *
 * Uses: records.
 */


#include "ngx_http_interim.h"


static ngx_int_t ngx_http_interim_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_interim_get_peer(ngx_peer_connection_t *pc,
    void *data);


/* the FastCGI module's directive, for the offset of its flag; NULL: unknown */

static ngx_command_t  *ngx_http_interim_keep_conn;


/* called after all upstream blocks have set peer.init */

ngx_int_t
ngx_http_interim_init_keep(ngx_conf_t *cf)
{
    ngx_uint_t                       i;
    ngx_command_t                   *cmd;
    ngx_http_interim_srv_conf_t     *iscf;
    ngx_http_upstream_srv_conf_t   **uscfp;
    ngx_http_upstream_main_conf_t   *umcf;

    ngx_http_interim_keep_conn = NULL;

    for (cmd = ngx_http_fastcgi_module.commands; cmd->name.len; cmd++) {
        if (ngx_strcmp(cmd->name.data, "fastcgi_keep_conn") == 0
            && cmd->set == ngx_conf_set_flag_slot)
        {
            ngx_http_interim_keep_conn = cmd;
        }
    }

    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);
    uscfp = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {

        /* an address without an upstream block keeps no connections */

        if (uscfp[i]->srv_conf == NULL) {
            continue;
        }

        iscf = ngx_http_conf_upstream_srv_conf(uscfp[i],
                                               ngx_http_interim_module);

        iscf->init_peer = uscfp[i]->peer.init;
        uscfp[i]->peer.init = ngx_http_interim_init_peer;
    }

    return NGX_OK;
}


/* whether fastcgi_keep_conn is on in this location */

ngx_uint_t
ngx_http_interim_keeps(ngx_http_request_t *r)
{
    u_char  *flcf;

    if (ngx_http_interim_keep_conn == NULL) {
        return 0;
    }

    flcf = (u_char *) ngx_http_get_module_loc_conf(r, ngx_http_fastcgi_module);

    return *(ngx_flag_t *) (flcf + ngx_http_interim_keep_conn->offset) == 1;
}


/*
 * Called after a response's header: keeps the connection if no part of the
 * response remains unread.  nginx checks that the request was sent completely.
 */

void
ngx_http_interim_keep(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx)
{
    if (ctx->keep
        && !ctx->torn
        && r->upstream->peer.connection
        && ngx_http_interim_ended(r))
    {
        ngx_log_debug0(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                       "http interim keeps the connection");

        r->upstream->keepalive = 1;
    }
}


static ngx_int_t
ngx_http_interim_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_int_t                     rc;
    ngx_http_upstream_t          *u;
    ngx_http_interim_ctx_t       *ctx;
    ngx_http_interim_srv_conf_t  *iscf;

    iscf = ngx_http_conf_upstream_srv_conf(us, ngx_http_interim_module);

    rc = iscf->init_peer(r, us);

    ctx = ngx_http_get_module_ctx(r, ngx_http_interim_module);
    u = r->upstream;

    if (rc == NGX_OK
        && ctx
        && ctx->keep
        && u->output.tag == (ngx_buf_tag_t) &ngx_http_fastcgi_module)
    {
        ctx->get_peer = u->peer.get;
        u->peer.get = ngx_http_interim_get_peer;
    }

    return rc;
}


static ngx_int_t
ngx_http_interim_get_peer(ngx_peer_connection_t *pc, void *data)
{
    char                     buf[1];
    ngx_int_t                rc;
    ngx_connection_t        *c;
    ngx_http_upstream_t     *u;
    ngx_http_interim_ctx_t  *ctx;

    u = ngx_queue_data(pc, ngx_http_upstream_t, peer);

    /* with FastCGI, input_filter_ctx is the request */

    ctx = ngx_http_get_module_ctx((ngx_http_request_t *) u->input_filter_ctx,
                                  ngx_http_interim_module);

    rc = ctx->get_peer(pc, data);

    c = pc->connection;

    if (rc != NGX_DONE || c == NULL) {
        return rc;
    }

    if (recv(c->fd, buf, 1, MSG_PEEK) == -1
        && ngx_socket_errno == NGX_EAGAIN)
    {
        return NGX_DONE;
    }

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, pc->log, 0,
                   "http interim closes kept connection: %d", c->fd);

    ngx_destroy_pool(c->pool);
    ngx_close_connection(c);

    pc->connection = NULL;
    pc->cached = 0;

    return NGX_OK;
}
