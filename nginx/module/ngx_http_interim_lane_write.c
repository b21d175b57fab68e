
/*
 * Writes held content into the file of a lane, in steps.
 *
 * The worker process prepares and finishes a step.  Between the two, the worker
 * process or a thread performs it: that part uses only the step itself.
 *
 * Uses: request.
 */


#include "ngx_http_interim_lane.h"

#include <sys/resource.h>


static ngx_uint_t ngx_http_interim_lane_gather(ngx_http_interim_lane_t *lane,
    ngx_http_interim_lane_work_t *work, off_t room);
static off_t ngx_http_interim_lane_room(ngx_http_interim_lane_t *lane);
static ngx_err_t ngx_http_interim_lane_check(
    ngx_http_interim_lane_work_t *work);
static ngx_err_t ngx_http_interim_lane_writev(
    ngx_http_interim_lane_work_t *work);
static void ngx_http_interim_lane_consume(ngx_http_interim_lane_t *lane,
    off_t n);


/* writes in the worker process; the result is that of the last step */

void
ngx_http_interim_lane_write_all(ngx_http_interim_lane_t *lane)
{
    ngx_http_interim_lane_work_t  work;

    while (lane->fd != NGX_INVALID_FILE
           && ngx_http_interim_lane_prepare(lane, &work))
    {
        ngx_http_interim_lane_perform(&work);
        ngx_http_interim_lane_finish(lane, &work);
    }
}


/*
 * Prepares the next step for an open file.  Returns 0 if no work remains.
 * Until the step is finished, the written buffers stay in "held".
 */

ngx_uint_t
ngx_http_interim_lane_prepare(ngx_http_interim_lane_t *lane,
    ngx_http_interim_lane_work_t *work)
{
    off_t       room;
    ngx_uint_t  whole, at_limit;

    work->fd = lane->fd;
    work->offset = lane->offset;
    work->n = 0;
    work->written = 0;
    work->err = 0;
    work->failed = NULL;
    work->check = !lane->checked;
    work->close = lane->stop;

    if (!lane->stop) {

        room = lane->limit - lane->count;

        if (room > 0) {
            room = ngx_min(room, ngx_http_interim_lane_room(lane));
            lane->full = (room == 0);
        }

        whole = ngx_http_interim_lane_gather(lane, work, room);

        /* until it is reset below, work->written is the size of the step */

        at_limit = (lane->count + work->written == lane->limit);
        work->written = 0;

        if (lane->finalized) {
            work->close = whole || at_limit || lane->full;

        } else {
            work->close = (whole && lane->last)
                          || (at_limit && lane->rest)
                          || lane->full;
        }
    }

    return work->n || work->check || work->close;
}


/*
 * Adds up to "room" bytes of held content to the step.  Returns 1 if these are
 * all held bytes.
 */

static ngx_uint_t
ngx_http_interim_lane_gather(ngx_http_interim_lane_t *lane,
    ngx_http_interim_lane_work_t *work, off_t room)
{
    size_t        size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    for (cl = lane->held; cl; cl = cl->next) {
        b = cl->buf;
        size = b->last - b->pos;

        if (size == 0) {
            continue;
        }

        if (room == 0 || work->n == NGX_IOVS_PREALLOCATE) {
            return 0;
        }

        work->iovs[work->n].iov_base = b->pos;
        work->iovs[work->n].iov_len = (size_t) ngx_min((off_t) size, room);

        room -= work->iovs[work->n].iov_len;
        work->written += work->iovs[work->n].iov_len;

        if (work->iovs[work->n++].iov_len < size) {
            return 0;
        }
    }

    return 1;
}


/*
 * The number of bytes that may be appended before the kernel would send
 * SIGXFSZ.  The limit is read each time, because prlimit() can change it.
 */

static off_t
ngx_http_interim_lane_room(ngx_http_interim_lane_t *lane)
{
    off_t          size;
    struct rlimit  rlmt;

    if (getrlimit(RLIMIT_FSIZE, &rlmt) == -1
        || rlmt.rlim_cur == RLIM_INFINITY
        || rlmt.rlim_cur > (rlim_t) NGX_MAX_OFF_T_VALUE)
    {
        return NGX_MAX_OFF_T_VALUE;
    }

    size = lane->offset + lane->count;

    return ((off_t) rlmt.rlim_cur > size) ? (off_t) rlmt.rlim_cur - size : 0;
}


/* may run in a thread; a failed step also closes the file */

void
ngx_http_interim_lane_perform(ngx_http_interim_lane_work_t *work)
{
    work->err = ngx_http_interim_lane_check(work);

    if (work->err == 0) {
        work->err = ngx_http_interim_lane_writev(work);
    }

    if (work->err) {
        work->close = 1;
    }

    if (work->close && close(work->fd) == -1 && work->err == 0) {
        work->err = ngx_errno;
        work->failed = "close() of content failed";
    }
}


static ngx_err_t
ngx_http_interim_lane_check(ngx_http_interim_lane_work_t *work)
{
    ngx_file_info_t  fi;

    if (!work->check) {
        return 0;
    }

    work->failed = "upstream granted a file that cannot be used";

    if (ngx_fd_info(work->fd, &fi) == NGX_FILE_ERROR) {
        return ngx_errno;
    }

    if (!ngx_is_file(&fi) || ngx_file_size(&fi) != work->offset) {
        return NGX_EINVAL;
    }

    return 0;
}


static ngx_err_t
ngx_http_interim_lane_writev(ngx_http_interim_lane_work_t *work)
{
    size_t         size;
    ssize_t        n;
    ngx_err_t      err;
    struct iovec  *iov, *last;

    iov = work->iovs;
    last = iov + work->n;

    work->failed = "writev() of content failed";

    while (iov < last) {

        n = writev(work->fd, iov, last - iov);

        if (n == -1) {
            err = ngx_errno;

            if (err == NGX_EINTR) {
                continue;
            }

            return err;
        }

        if (n == 0) {
            return EIO;
        }

        work->written += n;

        while (iov < last && n) {
            size = ngx_min((size_t) n, iov->iov_len);

            iov->iov_base = (u_char *) iov->iov_base + size;
            iov->iov_len -= size;
            n -= size;

            if (iov->iov_len == 0) {
                iov++;
            }
        }
    }

    return 0;
}


/* applies the results of a step, which closed the file if requested */

void
ngx_http_interim_lane_finish(ngx_http_interim_lane_t *lane,
    ngx_http_interim_lane_work_t *work)
{
    lane->checked = 1;

    ngx_http_interim_lane_consume(lane, work->written);

    if (work->err == EFBIG && ngx_http_interim_lane_room(lane) == 0) {

        /* RLIMIT_FSIZE was lowered while the step waited */

        work->err = 0;
        lane->full = 1;
    }

    if (work->err) {
        ngx_log_error(NGX_LOG_ERR, lane->request->connection->log, work->err,
                      "%s", work->failed);
    }

    if (work->close) {
        lane->fd = NGX_INVALID_FILE;
        lane->err = work->err;
    }
}


static void
ngx_http_interim_lane_consume(ngx_http_interim_lane_t *lane, off_t n)
{
    size_t        size;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    lane->count += n;

    while (lane->held) {
        cl = lane->held;
        b = cl->buf;
        size = (size_t) ngx_min(n, (off_t) (b->last - b->pos));

        b->pos += size;
        n -= size;

        if (b->pos < b->last) {
            return;
        }

        lane->held = cl->next;
        ngx_free_chain(lane->request->pool, cl);
    }

    lane->last_held = &lane->held;
}


void
ngx_http_interim_lane_close(ngx_fd_t *fd)
{
    if (*fd != NGX_INVALID_FILE) {
        (void) close(*fd);
        *fd = NGX_INVALID_FILE;
    }
}
