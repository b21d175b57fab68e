
/*
 * Declarations shared by the parts of ngx_http_interim_module: an interim
 * response, the state of a request, and the functions of each part.  A part
 * calls only those below it:
 *
 *     module
 *     upstream
 *     lane          keep  records     send        refuse
 *     lane_threads        parse       v1  v2  v3
 *     lane_write                      section  output
 *     request
 */


#ifndef _NGX_HTTP_INTERIM_H_INCLUDED_
#define _NGX_HTTP_INTERIM_H_INCLUDED_


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>


#define NGX_HTTP_INTERIM_MAX_FIELDS  16
#define NGX_HTTP_INTERIM_MAX_NAME    64

/* size in bytes of a message about content, and of its record */
#define NGX_HTTP_INTERIM_LANE_SIZE    24
#define NGX_HTTP_INTERIM_LANE_RECORD  (8 + NGX_HTTP_INTERIM_LANE_SIZE)


typedef struct ngx_http_interim_lane_s  ngx_http_interim_lane_t;


/* the strings are in the upstream's buffer */

typedef struct {
    ngx_str_t                    name;
    ngx_str_t                    value;
} ngx_http_interim_field_t;


typedef struct {
    ngx_uint_t                   status;
    ngx_str_t                    reason;
    ngx_uint_t                   nfields;
    ngx_http_interim_field_t     fields[NGX_HTTP_INTERIM_MAX_FIELDS];
} ngx_http_interim_t;


/* one encoded interim response that is sent to the client; reused */

typedef struct {
    ngx_buf_t                    buf;
    ngx_chain_t                  chain;
    ngx_http_event_handler_pt    write_event_handler;
#if (NGX_HTTP_V2)
    ngx_http_v2_out_frame_t      frame;
#endif
} ngx_http_interim_output_t;


typedef struct {
    ngx_http_handler_pt          handler;

    /* the original u->process_header and u->reinit_request */
    ngx_int_t                  (*process_header)(ngx_http_request_t *r);
    ngx_int_t                  (*reinit_request)(ngx_http_request_t *r);

    /* the original u->peer.get, if connections are kept */
    ngx_event_get_peer_pt        get_peer;

    /* remaining bytes of a record whose content has been processed */
    size_t                       padding;
    size_t                       stderr_rest;

    /* only in main requests */
    ngx_http_interim_output_t   *output;
    ngx_http_interim_lane_t     *lane;

    unsigned                     interim:1;
    unsigned                     keep:1;
    unsigned                     receive:1;
    unsigned                     final:1;
    unsigned                     expect:1;

    /* the response refuses a request with much unread content */
    unsigned                     refused:1;

    /* u->buffer does not begin with a record */
    unsigned                     torn:1;
} ngx_http_interim_ctx_t;


typedef struct {
    /* the original uscf->peer.init */
    ngx_http_upstream_init_peer_pt  init_peer;
} ngx_http_interim_srv_conf_t;


typedef struct {
    /* bit n: responses with status 100 + n are forwarded */
    uint32_t     statuses[4];
    ngx_flag_t   set;

    ngx_flag_t   receive;
#if (NGX_THREADS)
    /* NULL if the worker process writes itself */
    ngx_thread_pool_t  *pool;
#endif
} ngx_http_interim_loc_conf_t;


/* functions; each part precedes those that it calls */

/* upstream: the content handler */

ngx_int_t ngx_http_interim_handler(ngx_http_request_t *r);

/* lane, with lane_threads and lane_write below it (ngx_http_interim_lane.h) */

void ngx_http_interim_init_lane(void);
ngx_int_t ngx_http_interim_lane_answer(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx, ngx_str_t *message);

/* keep */

ngx_int_t ngx_http_interim_init_keep(ngx_conf_t *cf);
ngx_uint_t ngx_http_interim_keeps(ngx_http_request_t *r);
void ngx_http_interim_keep(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx);

/* records */

ngx_int_t ngx_http_interim_find(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx, ngx_str_t *block);
void ngx_http_interim_cut(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx,
    ngx_str_t *block);
ngx_uint_t ngx_http_interim_ended(ngx_http_request_t *r);
u_char *ngx_http_interim_start(ngx_http_request_t *r);

/* refuse */

void ngx_http_interim_refuse(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx);

/* parse */

ngx_int_t ngx_http_interim_match(u_char *p, u_char *last);
ngx_int_t ngx_http_interim_parse(ngx_http_request_t *r, ngx_str_t *block,
    ngx_http_interim_t *interim);

/* send */

ngx_int_t ngx_http_interim_send(ngx_http_request_t *r,
    ngx_http_interim_t *interim);

/* v1, v2, v3 */

ngx_int_t ngx_http_interim_send_v1(ngx_http_request_t *r,
    ngx_http_interim_t *interim);

#if (NGX_HTTP_V2)
ngx_int_t ngx_http_interim_send_v2(ngx_http_request_t *r,
    ngx_http_interim_t *interim);
void ngx_http_interim_init_v2(void);
#endif

#if (NGX_HTTP_V3)
ngx_int_t ngx_http_interim_send_v3(ngx_http_request_t *r,
    ngx_http_interim_t *interim);
#endif

/* section: "prefix" is the prefix of the length of a field's name */

size_t ngx_http_interim_section_size(ngx_http_interim_t *interim);
u_char *ngx_http_interim_copy_fields(u_char *p, ngx_http_interim_t *interim,
    ngx_uint_t prefix);
u_char *ngx_http_interim_prefix_int(u_char *p, u_char flags, ngx_uint_t prefix,
    size_t value);

/* output */

ngx_http_interim_output_t *ngx_http_interim_output(ngx_http_request_t *r,
    size_t size);
ngx_int_t ngx_http_interim_write(ngx_http_request_t *r,
    ngx_http_interim_output_t *out);

/* request: status 0 means any status */

ngx_http_interim_ctx_t *ngx_http_interim_get_ctx(ngx_http_request_t *r);
ngx_uint_t ngx_http_interim_passes(ngx_http_request_t *r, ngx_uint_t status);


extern ngx_module_t  ngx_http_interim_module;
extern ngx_module_t  ngx_http_fastcgi_module;


#endif /* _NGX_HTTP_INTERIM_H_INCLUDED_ */
