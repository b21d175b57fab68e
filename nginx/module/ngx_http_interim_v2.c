
/*
 * Interim responses over HTTP/2: a HEADERS frame without END_STREAM, queued
 * and counted like nginx's own frames.
 *
 * Uses: section and output.
 */


#include "ngx_http_interim.h"


#if (NGX_HTTP_V2)

typedef ngx_int_t (*ngx_http_interim_frame_handler_pt)
    (ngx_http_v2_connection_t *h2c, ngx_http_v2_out_frame_t *frame);


static ngx_int_t ngx_http_interim_header_filter_v2(ngx_http_request_t *r);
static ngx_uint_t ngx_http_interim_replace_handler(ngx_http_v2_stream_t *stream,
    ngx_http_interim_frame_handler_pt from,
    ngx_http_interim_frame_handler_pt to);
static ngx_int_t ngx_http_interim_frame_handler(ngx_http_v2_connection_t *h2c,
    ngx_http_v2_out_frame_t *frame);
static ngx_int_t ngx_http_interim_uncounted_frame_handler(
    ngx_http_v2_connection_t *h2c, ngx_http_v2_out_frame_t *frame);


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;


/* missing in an nginx that was built without HTTP/2 */

ngx_int_t ngx_http_v2_send_output_queue(ngx_http_v2_connection_t *h2c)
    __attribute__((weak));


ngx_int_t
ngx_http_interim_send_v2(ngx_http_request_t *r, ngx_http_interim_t *interim)
{
    u_char                     *p;
    size_t                      size;
    ngx_connection_t           *fc;
    ngx_http_v2_stream_t       *stream;
    ngx_http_v2_out_frame_t    *frame;
    ngx_http_v2_connection_t   *h2c;
    ngx_http_interim_output_t  *out;

    if (ngx_http_v2_send_output_queue == NULL) {
        return NGX_DECLINED;
    }

    fc = r->connection;
    stream = r->stream;
    h2c = stream->connection;

    if (stream->rst_sent || stream->out_closed || h2c->connection->error) {
        return NGX_DECLINED;
    }

    size = ngx_http_interim_section_size(interim);

    if (size > h2c->frame_size) {
        ngx_log_error(NGX_LOG_ERR, fc->log, 0,
                      "interim response of up to %uz bytes is larger than "
                      "the client's frames of %uz, it is dropped",
                      size, h2c->frame_size);
        return NGX_DECLINED;
    }

    out = ngx_http_interim_output(r, NGX_HTTP_V2_FRAME_HEADER_SIZE + size);
    if (out == NULL) {
        return NGX_DECLINED;
    }

    p = out->buf.start + NGX_HTTP_V2_FRAME_HEADER_SIZE;

    if (h2c->table_update) {
        /* required in the first section after the client's change: this one */
        *p++ = 0x20;
        h2c->table_update = 0;
    }

    /* ":status", with its name from the static table (RFC 7541, 6.2.2) */

    *p++ = 8;
    *p++ = 3;
    p = ngx_sprintf(p, "%03ui", interim->status);

    p = ngx_http_interim_copy_fields(p, interim, 7);

    out->buf.last = p;

    size = p - out->buf.start - NGX_HTTP_V2_FRAME_HEADER_SIZE;

    p = out->buf.start;
    *p++ = (u_char) (size >> 16);
    *p++ = (u_char) (size >> 8);
    *p++ = (u_char) size;
    *p++ = NGX_HTTP_V2_HEADERS_FRAME;
    *p++ = NGX_HTTP_V2_END_HEADERS_FLAG;
    (void) ngx_http_v2_write_sid(p, stream->node->id);

    frame = &out->frame;

    frame->first = &out->chain;
    frame->last = &out->chain;
    frame->handler = ngx_http_interim_frame_handler;
    frame->stream = stream;
    frame->length = size;
    frame->blocked = 1;
    frame->fin = 0;

    ngx_http_v2_queue_blocked_frame(h2c, frame);

    stream->queued++;

    stream->blocked = 1;

    if (ngx_http_v2_send_output_queue(h2c) == NGX_ERROR) {
        fc->error = 1;
        return NGX_DECLINED;
    }

    stream->blocked = 0;

    if (stream->queued) {
        fc->buffered |= NGX_HTTP_V2_BUFFERED;
        fc->write->active = 1;
        fc->write->ready = 0;
    }

    return NGX_OK;
}


/*
 * nginx 1.25.1 to 1.28 assumes that the final HEADERS frame is the first one of
 * its stream, and sets stream->queued to 1.  Therefore queued frames of this
 * module are not counted during that call, and are counted again afterwards.
 */

static ngx_int_t
ngx_http_interim_header_filter_v2(ngx_http_request_t *r)
{
    ngx_int_t              rc;
    ngx_http_v2_stream_t  *stream;

    stream = r->stream;

    if (stream == NULL || r != r->main || stream->queued == 0) {
        return ngx_http_next_header_filter(r);
    }

    stream->queued -= ngx_http_interim_replace_handler(stream,
                                    ngx_http_interim_frame_handler,
                                    ngx_http_interim_uncounted_frame_handler);

    rc = ngx_http_next_header_filter(r);

    stream->queued += ngx_http_interim_replace_handler(stream,
                                    ngx_http_interim_uncounted_frame_handler,
                                    ngx_http_interim_frame_handler);

    return rc;
}


/* several are possible after an internal redirect, which clears contexts */

static ngx_uint_t
ngx_http_interim_replace_handler(ngx_http_v2_stream_t *stream,
    ngx_http_interim_frame_handler_pt from,
    ngx_http_interim_frame_handler_pt to)
{
    ngx_uint_t                n;
    ngx_http_v2_out_frame_t  *frame;

    n = 0;

    for (frame = stream->connection->last_out; frame; frame = frame->next) {

        if (frame->stream == stream && frame->handler == from) {
            frame->handler = to;
            n++;
        }
    }

    return n;
}


void
ngx_http_interim_init_v2(void)
{
    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_interim_header_filter_v2;
}


/* as nginx does after it has sent one of its own HEADERS frames */

static ngx_int_t
ngx_http_interim_frame_handler(ngx_http_v2_connection_t *h2c,
    ngx_http_v2_out_frame_t *frame)
{
    ngx_event_t           *wev;
    ngx_connection_t      *fc;
    ngx_http_v2_stream_t  *stream;

    stream = frame->stream;

    if (ngx_http_interim_uncounted_frame_handler(h2c, frame) != NGX_OK) {
        return NGX_AGAIN;
    }

    fc = stream->request->connection;

    stream->queued--;

    if (stream->queued == 0) {
        fc->buffered &= ~NGX_HTTP_V2_BUFFERED;
    }

    if (stream->waiting
        || stream->blocked
        || (!fc->error && stream->exhausted))
    {
        return NGX_OK;
    }

    wev = fc->write;

    wev->active = 0;
    wev->ready = 1;

    if (fc->error || !wev->delayed) {
        ngx_post_event(wev, &ngx_posted_events);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_interim_uncounted_frame_handler(ngx_http_v2_connection_t *h2c,
    ngx_http_v2_out_frame_t *frame)
{
    size_t                 size;
    ngx_connection_t      *fc;
    ngx_http_v2_stream_t  *stream;

    if (frame->first->buf->pos != frame->first->buf->last) {
        return NGX_AGAIN;
    }

    stream = frame->stream;
    fc = stream->request->connection;
    size = NGX_HTTP_V2_FRAME_HEADER_SIZE + frame->length;

    stream->request->header_size += size;
    fc->sent += size;

    h2c->total_bytes += size;
    h2c->payload_bytes += frame->length;

    return NGX_OK;
}

#endif
