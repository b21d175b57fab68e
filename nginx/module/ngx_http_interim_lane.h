
/*
 * The state of a lane, and the functions that its parts share:
 *
 *     lane
 *     lane_threads
 *     lane_write
 */


#ifndef _NGX_HTTP_INTERIM_LANE_H_INCLUDED_
#define _NGX_HTTP_INTERIM_LANE_H_INCLUDED_


#include "ngx_http_interim.h"


typedef enum {
    /* nothing was sent yet */
    ngx_http_interim_lane_new = 0,
    ngx_http_interim_lane_offered,
    ngx_http_interim_lane_granted,
    /* content that is not written is dropped */
    ngx_http_interim_lane_stopped,
    /* content goes on to the FastCGI module */
    ngx_http_interim_lane_over
} ngx_http_interim_lane_state_e;


struct ngx_http_interim_lane_s {
    ngx_http_request_t            *request;

    /*
     * r->upstream and r->ctx may be of another location when the upstream of
     * this lane is finalized
     */
    ngx_http_upstream_t           *upstream;

    /* the connection whose recv() is replaced */
    ngx_connection_t              *connection;

    /*
     * The file, or NGX_INVALID_FILE.  It belongs to the thread while one works.
     * A debug log shows it as the ident of the task's timer, so it must follow
     * three pointers, as in ngx_connection_t.
     */
    ngx_fd_t                       fd;

    /* a descriptor that was received and is not granted yet */
    ngx_fd_t                       passed;

    ngx_http_interim_lane_state_e  state;

    /* the replaced functions of the upstream and of its connection */
    ngx_int_t                    (*create_request)(ngx_http_request_t *r);
    void                         (*finalize_request)(ngx_http_request_t *r,
                                       ngx_int_t rc);
    ngx_output_chain_filter_pt     filter;
    ngx_recv_pt                    recv;

    /* the file's size at the grant; the numbers below count from there */
    off_t                          offset;
    off_t                          limit;
    off_t                          count;
    off_t                          told;
    time_t                         told_at;

    /* why writing has failed, if the file is closed */
    ngx_err_t                      err;

    /* content that is not written yet */
    ngx_chain_t                   *held;
    ngx_chain_t                  **last_held;

    /* own records */
    ngx_chain_t                   *free;
    ngx_chain_t                   *busy;

#if (NGX_THREADS)
    /* NULL if the worker process writes by itself */
    ngx_thread_task_t             *task;
    ngx_thread_pool_t             *pool;

    /* the upstream's connection, to be closed after the file */
    ngx_connection_t              *kept;

    /* when the running task was posted */
    time_t                         posted_at;
#endif

    unsigned                       rest:1;
    /* RLIMIT_FSIZE allows no more: the rest goes to the FastCGI module */
    unsigned                       full:1;
    unsigned                       last:1;
    unsigned                       bad:1;
    /* the file was compared with the grant */
    unsigned                       checked:1;
    /* the file is to be closed without another write */
    unsigned                       stop:1;
    /* the upstream is finalized: no more content follows "held" */
    unsigned                       finalized:1;
    /* nginx has terminated the request, or frees it */
    unsigned                       terminated:1;
    unsigned                       working:1;
};


/*
 * One step of writing: compares the file with the grant, writes, closes.  Each
 * of them only if it is asked for.
 */

typedef struct {
    ngx_fd_t                       fd;
    off_t                          offset;
    ngx_uint_t                     n;
    struct iovec                   iovs[NGX_IOVS_PREALLOCATE];

    /* results; "failed" is the text for the log */
    off_t                          written;
    ngx_err_t                      err;
    char                          *failed;

    unsigned                       check:1;
    unsigned                       close:1;
} ngx_http_interim_lane_work_t;


/* lane_threads */

#if (NGX_THREADS)
ngx_int_t ngx_http_interim_lane_use_threads(ngx_http_interim_lane_t *lane,
    ngx_thread_pool_t *pool);
void ngx_http_interim_lane_post(ngx_http_interim_lane_t *lane);
void ngx_http_interim_lane_detach(ngx_http_interim_lane_t *lane);
#endif

/* lane_write */

void ngx_http_interim_lane_write_all(ngx_http_interim_lane_t *lane);
ngx_uint_t ngx_http_interim_lane_prepare(ngx_http_interim_lane_t *lane,
    ngx_http_interim_lane_work_t *work);
void ngx_http_interim_lane_perform(ngx_http_interim_lane_work_t *work);
void ngx_http_interim_lane_finish(ngx_http_interim_lane_t *lane,
    ngx_http_interim_lane_work_t *work);
void ngx_http_interim_lane_close(ngx_fd_t *fd);


#endif /* _NGX_HTTP_INTERIM_LANE_H_INCLUDED_ */
