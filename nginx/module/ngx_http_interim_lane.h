
/*
 * The state of a lane, and the functions shared by its parts:
 *
 *     lane
 *     lane_threads
 *     lane_write
 */


#ifndef _NGX_HTTP_INTERIM_LANE_H_INCLUDED_
#define _NGX_HTTP_INTERIM_LANE_H_INCLUDED_


#include "ngx_http_interim.h"


typedef enum {
    /* nothing has been sent yet */
    ngx_http_interim_lane_new = 0,
    ngx_http_interim_lane_offered,
    ngx_http_interim_lane_granted,
    /* unwritten content is dropped */
    ngx_http_interim_lane_stopped,
    /* content is passed to the FastCGI module */
    ngx_http_interim_lane_over
} ngx_http_interim_lane_state_e;


struct ngx_http_interim_lane_s {
    ngx_http_request_t            *request;

    /*
     * r->upstream and r->ctx may belong to another location when the upstream
     * of this lane is finalized
     */
    ngx_http_upstream_t           *upstream;

    /* the connection whose recv() is replaced */
    ngx_connection_t              *connection;

    /*
     * The file, or NGX_INVALID_FILE.  While a thread works, only the thread
     * uses it.  A debug log shows it as the ident of the task's timer, so it
     * must follow three pointers, as in ngx_connection_t.
     */
    ngx_fd_t                       fd;

    /* a received descriptor that is not granted yet */
    ngx_fd_t                       passed;

    ngx_http_interim_lane_state_e  state;

    /* the replaced functions of the upstream and of its connection */
    ngx_int_t                    (*create_request)(ngx_http_request_t *r);
    void                         (*finalize_request)(ngx_http_request_t *r,
                                       ngx_int_t rc);
    ngx_output_chain_filter_pt     filter;
    ngx_recv_pt                    recv;

    /* the file's size at the grant; the numbers below are relative to it */
    off_t                          offset;
    off_t                          limit;
    off_t                          count;
    off_t                          told;
    time_t                         told_at;

    /* the error of writing, if the file is closed */
    ngx_err_t                      err;

    /* content that is not written yet */
    ngx_chain_t                   *held;
    ngx_chain_t                  **last_held;

    /* own records */
    ngx_chain_t                   *free;
    ngx_chain_t                   *busy;

#if (NGX_THREADS)
    /* NULL if the worker process writes itself */
    ngx_thread_task_t             *task;
    ngx_thread_pool_t             *pool;

    /* the upstream's connection, to be closed after the file */
    ngx_connection_t              *kept;

    /* when the running task was posted */
    time_t                         posted_at;
#endif

    unsigned                       rest:1;
    /* RLIMIT_FSIZE is reached: the rest is passed to the FastCGI module */
    unsigned                       full:1;
    unsigned                       last:1;
    unsigned                       bad:1;
    /* the file has been compared with the grant */
    unsigned                       checked:1;
    /* the file must be closed without another write */
    unsigned                       stop:1;
    /* the upstream is finalized: no more content follows "held" */
    unsigned                       finalized:1;
    /* nginx has terminated the request, or is freeing it */
    unsigned                       terminated:1;
    unsigned                       working:1;
};


/*
 * One step of writing: compares the file with the grant, writes and closes it,
 * each only if requested.
 */

typedef struct {
    ngx_fd_t                       fd;
    off_t                          offset;
    ngx_uint_t                     n;
    struct iovec                   iovs[NGX_IOVS_PREALLOCATE];

    /* results; "failed" is the message for the log */
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
