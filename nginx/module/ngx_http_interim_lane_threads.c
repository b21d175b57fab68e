
/*
 * Writes the content of a lane in a thread pool, one step at a time.
 *
 * While a thread works, only the thread uses the descriptor and the buffers of
 * the step, so the request must outlive it.  r->blocked is not sufficient,
 * because ngx_http_set_keepalive() frees a request without checking it.
 * Therefore a working thread also holds a reference to the request.  r->aio
 * stays 0: otherwise a response, or a request that error_page has redirected
 * to another location, would wait for the thread.
 *
 * If the file is open when the upstream is finalized, the lane is detached: a
 * thread writes the rest and closes the file, then the worker process closes
 * the upstream's connection.  The request may then be in another location, so
 * a detached lane uses neither r->ctx nor r->upstream.
 *
 * Uses: lane_write.
 */


#include "ngx_http_interim_lane.h"


#if (NGX_THREADS)


/* milliseconds between messages about a write that does not return */
#define NGX_HTTP_INTERIM_LANE_STALL  60000


static void ngx_http_interim_lane_thread(void *data, ngx_log_t *log);
static void ngx_http_interim_lane_task_handler(ngx_event_t *ev);
static void ngx_http_interim_lane_done(ngx_http_interim_lane_t *lane);
static void ngx_http_interim_lane_release(ngx_http_request_t *r,
    ngx_uint_t terminated, ngx_uint_t finalized);
static void ngx_http_interim_lane_keep(ngx_http_interim_lane_t *lane);
static void ngx_http_interim_lane_close_kept(ngx_http_interim_lane_t *lane);
static void ngx_http_interim_lane_silent_handler(ngx_event_t *ev);


ngx_int_t
ngx_http_interim_lane_use_threads(ngx_http_interim_lane_t *lane,
    ngx_thread_pool_t *pool)
{
    ngx_thread_task_t  *task;

    task = ngx_thread_task_alloc(lane->request->pool,
                                 sizeof(ngx_http_interim_lane_work_t));
    if (task == NULL) {
        return NGX_ERROR;
    }

    task->handler = ngx_http_interim_lane_thread;
    task->event.handler = ngx_http_interim_lane_task_handler;
    task->event.data = lane;
    task->event.log = lane->request->connection->log;

    lane->task = task;
    lane->pool = pool;

    return NGX_OK;
}


/*
 * Posts the next step, unless a step is running or no work remains.  If the
 * pool's queue is full, closes the file and sets lane->err.
 */

void
ngx_http_interim_lane_post(ngx_http_interim_lane_t *lane)
{
    if (lane->working
        || lane->fd == NGX_INVALID_FILE
        || !ngx_http_interim_lane_prepare(lane, lane->task->ctx))
    {
        return;
    }

    if (ngx_thread_task_post(lane->pool, lane->task) != NGX_OK) {
        ngx_http_interim_lane_close(&lane->fd);
        lane->err = NGX_EAGAIN;
        return;
    }

    lane->working = 1;
    lane->posted_at = ngx_time();

    lane->request->main->count++;
    lane->request->main->blocked++;

    /*
     * A worker process waits for timers before it shuts down, and the request
     * may have none.
     */

    ngx_add_timer(&lane->task->event, NGX_HTTP_INTERIM_LANE_STALL);
}


static void
ngx_http_interim_lane_thread(void *data, ngx_log_t *log)
{
    ngx_http_interim_lane_perform(data);
}


static void
ngx_http_interim_lane_task_handler(ngx_event_t *ev)
{
    ngx_connection_t         *c;
    ngx_http_interim_lane_t  *lane;

    lane = ev->data;
    c = lane->request->connection;

    ngx_http_set_log_request(c->log, lane->request);

    if (ev->timedout) {
        ev->timedout = 0;

        ngx_log_error(NGX_LOG_ERR, c->log, 0,
                      "writing content has not finished after %T seconds",
                      ngx_time() - lane->posted_at);

        ngx_add_timer(ev, NGX_HTTP_INTERIM_LANE_STALL);
        return;
    }

    ngx_del_timer(ev);
    ev->complete = 0;

    ngx_http_interim_lane_done(lane);

    ngx_http_run_posted_requests(c);
}


/* a step has ended; the lane may be freed on return */

static void
ngx_http_interim_lane_done(ngx_http_interim_lane_t *lane)
{
    ngx_connection_t    *c;
    ngx_http_request_t  *r;

    r = lane->request;

    lane->working = 0;
    r->main->blocked--;

    ngx_http_interim_lane_finish(lane, lane->task->ctx);

    if (lane->finalized) {
        ngx_http_interim_lane_post(lane);

        if (lane->working) {
            r->main->count--;
            return;
        }

        ngx_http_interim_lane_close_kept(lane);

    } else {
        c = lane->upstream->peer.connection;

        if (c) {
            ngx_post_event(c->write, &ngx_posted_events);
        }
    }

    ngx_http_interim_lane_release(r, lane->terminated, lane->finalized);
}


/* drops the reference of a working thread */

static void
ngx_http_interim_lane_release(ngx_http_request_t *r, ngx_uint_t terminated,
    ngx_uint_t finalized)
{
    if (terminated) {

        /*
         * ngx_http_terminate_request() has waited for r->blocked.  The second
         * call frees the request, regardless of its reference count.
         */

        r->connection->error = 1;
        ngx_http_finalize_request(r, NGX_ERROR);
        return;
    }

    if (r->main->count > 1) {
        r->main->count--;
        return;
    }

    if (finalized) {
        /* the response is complete: keepalive, lingering close or close */
        ngx_http_finalize_request(r, NGX_DONE);
        return;
    }

    /* nginx has dropped a running request after an internal error */

    r->connection->error = 1;
    ngx_http_finalize_request(r, NGX_ERROR);
}


/* the upstream is finalized; the lane is not used after its last step */

void
ngx_http_interim_lane_detach(ngx_http_interim_lane_t *lane)
{
    lane->finalized = 1;

    if (lane->fd == NGX_INVALID_FILE) {

        /* a descriptor that was not granted: closing it can also stall */

        lane->fd = lane->passed;
        lane->passed = NGX_INVALID_FILE;
        lane->stop = 1;
    }

    if (lane->request->main->count == 0) {

        /* the request is being freed and cannot wait for a thread */

        ngx_http_interim_lane_close(&lane->fd);
        return;
    }

    ngx_http_interim_lane_post(lane);

    if (lane->working) {
        ngx_http_interim_lane_keep(lane);
    }
}


/* takes the connection from the upstream, which would close it at once */

static void
ngx_http_interim_lane_keep(ngx_http_interim_lane_t *lane)
{
    ngx_connection_t  *c;

    c = lane->upstream->peer.connection;

    if (c == NULL) {
        return;
    }

    lane->upstream->peer.connection = NULL;
    lane->kept = c;

    c->read->handler = ngx_http_interim_lane_silent_handler;
    c->write->handler = ngx_http_interim_lane_silent_handler;

    if (c->read->timer_set) {
        ngx_del_timer(c->read);
    }

    if (c->write->timer_set) {
        ngx_del_timer(c->write);
    }
}


static void
ngx_http_interim_lane_close_kept(ngx_http_interim_lane_t *lane)
{
    ngx_connection_t  *c;

    c = lane->kept;

    if (c == NULL) {
        return;
    }

    lane->kept = NULL;

    ngx_log_debug1(NGX_LOG_DEBUG_HTTP, lane->request->connection->log, 0,
                   "close http upstream connection: %d", c->fd);

    if (c->pool) {
        ngx_destroy_pool(c->pool);
    }

    ngx_close_connection(c);
}


static void
ngx_http_interim_lane_silent_handler(ngx_event_t *ev)
{
    if ((ngx_event_flags & NGX_USE_LEVEL_EVENT) && ev->active) {
        (void) ngx_del_event(ev, ev->write ? NGX_WRITE_EVENT : NGX_READ_EVENT,
                             0);
    }
}


#endif
