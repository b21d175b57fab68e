
/*
 * FastCGI records: finds interim responses at the start of u->buffer and
 * removes them before the FastCGI module reads them; detects whether the buffer
 * contains a response up to its end.
 *
 * The buffer begins at the head of a record, or within a record whose content
 * has been processed.  No data is kept outside the buffer, so its size limits a
 * block, and a block may span any number of records.
 *
 * Uses: parse.
 */


#include "ngx_http_interim.h"


#define NGX_HTTP_INTERIM_VERSION      1
#define NGX_HTTP_INTERIM_END_REQUEST  3
#define NGX_HTTP_INTERIM_STDOUT       6
#define NGX_HTTP_INTERIM_STDERR       7
#define NGX_HTTP_INTERIM_DATA         8

#define NGX_HTTP_INTERIM_HEAD_SIZE    8
#define NGX_HTTP_INTERIM_END_SIZE     8
#define NGX_HTTP_INTERIM_MAX_CONTENT  65535


typedef struct {
    ngx_uint_t   type;
    size_t       length;
    size_t       padding;
} ngx_http_interim_record_t;


static ngx_int_t ngx_http_interim_join(ngx_buf_t *b);
static ngx_int_t ngx_http_interim_read_head(u_char *p,
    ngx_http_interim_record_t *record);
static void ngx_http_interim_write_length(u_char *p, size_t length);
static u_char *ngx_http_interim_block_end(u_char *p, u_char *last);
static ngx_int_t ngx_http_interim_stderr(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx, ngx_http_interim_record_t *record);
static ngx_int_t ngx_http_interim_show(ngx_http_request_t *r,
    ngx_http_interim_ctx_t *ctx, size_t size);
static void ngx_http_interim_compact(ngx_http_request_t *r);


/*
 * NGX_OK:        "block" is an interim response, with its empty line
 * NGX_DONE:      "block" is a message about content
 * NGX_AGAIN:     more data is needed
 * NGX_DECLINED:  the buffer begins with other data
 *
 * other values are results of the FastCGI module
 */

ngx_int_t
ngx_http_interim_find(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx,
    ngx_str_t *block)
{
    u_char                     *content, *last, *end;
    size_t                      size;
    ngx_int_t                   rc;
    ngx_buf_t                  *b;
    ngx_http_interim_record_t   record;

    b = &r->upstream->buffer;

    for ( ;; ) {

        if (ctx->padding) {
            size = ngx_min(ctx->padding, (size_t) (b->last - b->pos));
            b->pos += size;
            ctx->padding -= size;
        }

        if (ctx->stderr_rest && b->pos < b->last) {
            size = ngx_min(ctx->stderr_rest, (size_t) (b->last - b->pos));
            ctx->stderr_rest -= size;

            rc = ngx_http_interim_show(r, ctx, size);
            if (rc != NGX_AGAIN) {
                return rc;
            }
        }

        if (b->last - b->pos < NGX_HTTP_INTERIM_HEAD_SIZE) {
            ngx_http_interim_compact(r);
            return NGX_AGAIN;
        }

        if (ngx_http_interim_read_head(b->pos, &record) != NGX_OK) {
            break;
        }

        if (record.type == NGX_HTTP_INTERIM_STDERR) {
            rc = ngx_http_interim_stderr(r, ctx, &record);

            if (rc == NGX_OK) {
                continue;
            }

            return rc;
        }

        if (record.type == NGX_HTTP_INTERIM_DATA
            && record.length == NGX_HTTP_INTERIM_LANE_SIZE)
        {
            content = b->pos + NGX_HTTP_INTERIM_HEAD_SIZE;

            if ((size_t) (b->last - content) < record.length) {
                ngx_http_interim_compact(r);
                return NGX_AGAIN;
            }

            block->data = content;
            block->len = record.length;
            return NGX_DONE;
        }

        if (record.type != NGX_HTTP_INTERIM_STDOUT || record.length == 0) {
            break;
        }

        content = b->pos + NGX_HTTP_INTERIM_HEAD_SIZE;
        size = ngx_min(record.length, (size_t) (b->last - content));
        last = content + size;

        rc = ngx_http_interim_match(content, last);

        if (rc == NGX_DECLINED) {
            break;
        }

        end = (rc == NGX_OK) ? ngx_http_interim_block_end(content, last)
                             : NULL;

        if (end) {
            block->data = content;
            block->len = end - content;
            return NGX_OK;
        }

        rc = (size == record.length) ? ngx_http_interim_join(b) : NGX_AGAIN;

        if (rc == NGX_DECLINED) {
            break;
        }

        if (rc == NGX_AGAIN) {
            ngx_http_interim_compact(r);
            return NGX_AGAIN;
        }
    }

    ngx_http_interim_compact(r);

    return NGX_DECLINED;
}


/* removes a block that has just been found */

void
ngx_http_interim_cut(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx,
    ngx_str_t *block)
{
    u_char                     *head;
    ngx_buf_t                  *b;
    ngx_http_interim_record_t   record;

    b = &r->upstream->buffer;
    head = b->pos;

    (void) ngx_http_interim_read_head(head, &record);

    b->pos = block->data + block->len;

    if (block->len == record.length) {
        ctx->padding = record.padding;
        return;
    }

    /* the record continues: its head moves in front of the rest */

    b->pos -= NGX_HTTP_INTERIM_HEAD_SIZE;

    ngx_memmove(b->pos, head, NGX_HTTP_INTERIM_HEAD_SIZE);
    ngx_http_interim_write_length(b->pos, record.length - block->len);
}


/*
 * Joins the first two records, which are STDOUT and the first of which is
 * complete.  If both exceed the maximum of one record, moves only as much of
 * the second as is available and fits.
 */

static ngx_int_t
ngx_http_interim_join(ngx_buf_t *b)
{
    u_char                     *end, *next, head[NGX_HTTP_INTERIM_HEAD_SIZE];
    size_t                      size;
    ngx_http_interim_record_t   first, second;

    (void) ngx_http_interim_read_head(b->pos, &first);

    end = b->pos + NGX_HTTP_INTERIM_HEAD_SIZE + first.length;

    if ((size_t) (b->last - end) < first.padding + NGX_HTTP_INTERIM_HEAD_SIZE) {
        return NGX_AGAIN;
    }

    next = end + first.padding;

    if (ngx_http_interim_read_head(next, &second) != NGX_OK
        || second.type != NGX_HTTP_INTERIM_STDOUT
        || second.length == 0
        || first.length == NGX_HTTP_INTERIM_MAX_CONTENT)
    {
        return NGX_DECLINED;
    }

    ngx_memcpy(head, next, NGX_HTTP_INTERIM_HEAD_SIZE);
    next += NGX_HTTP_INTERIM_HEAD_SIZE;

    if (first.length + second.length <= NGX_HTTP_INTERIM_MAX_CONTENT) {
        ngx_memcpy(b->pos, head, NGX_HTTP_INTERIM_HEAD_SIZE);
        ngx_http_interim_write_length(b->pos, first.length + second.length);

        b->last = ngx_movemem(end, next, b->last - next);

        return NGX_OK;
    }

    size = ngx_min((size_t) (b->last - next),
                   NGX_HTTP_INTERIM_MAX_CONTENT - first.length);

    if (size == 0) {
        return NGX_AGAIN;
    }

    ngx_http_interim_write_length(b->pos, first.length + size);
    b->pos[6] = 0;

    end = ngx_movemem(end, next, size);
    next += size;

    ngx_http_interim_write_length(head, second.length - size);
    end = ngx_movemem(end, head, NGX_HTTP_INTERIM_HEAD_SIZE);

    b->last = ngx_movemem(end, next, b->last - next);

    return NGX_OK;
}


/* NGX_DECLINED: the FastCGI module must handle the record */

static ngx_int_t
ngx_http_interim_read_head(u_char *p, ngx_http_interim_record_t *record)
{
    record->type = p[1];
    record->length = (p[4] << 8) | p[5];
    record->padding = p[6];

    /* nginx sends one request at a time on a connection, with the ID 1 */

    if (p[0] != NGX_HTTP_INTERIM_VERSION || p[2] != 0 || p[3] != 1) {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


static void
ngx_http_interim_write_length(u_char *p, size_t length)
{
    p[4] = (u_char) (length >> 8);
    p[5] = (u_char) length;
}


/* NULL until the buffer contains an empty line */

static u_char *
ngx_http_interim_block_end(u_char *p, u_char *last)
{
    for ( ;; ) {
        p = ngx_strlchr(p, last, LF);

        if (p == NULL) {
            return NULL;
        }

        p++;

        if (p < last && *p == LF) {
            return p + 1;
        }

        if (p + 1 < last && p[0] == CR && p[1] == LF) {
            return p + 2;
        }
    }
}


/*
 * The FastCGI module logs STDERR: it gets this record and no data after it.
 * A record that is larger than the buffer is passed in parts.
 */

static ngx_int_t
ngx_http_interim_stderr(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx,
    ngx_http_interim_record_t *record)
{
    size_t      size, whole;
    ngx_int_t   rc;
    ngx_buf_t  *b;

    b = &r->upstream->buffer;

    whole = NGX_HTTP_INTERIM_HEAD_SIZE + record->length + record->padding;
    size = b->last - b->pos;

    if (size < whole) {
        ngx_http_interim_compact(r);

        if (b->last < b->end) {
            return NGX_AGAIN;
        }
    }

    size = ngx_min(size, whole);
    ctx->stderr_rest = whole - size;

    rc = ngx_http_interim_show(r, ctx, size);

    return (rc == NGX_AGAIN) ? NGX_OK : rc;
}


/* NGX_AGAIN if the FastCGI module needs more data */

static ngx_int_t
ngx_http_interim_show(ngx_http_request_t *r, ngx_http_interim_ctx_t *ctx,
    size_t size)
{
    u_char     *rest, *last;
    ngx_int_t   rc;
    ngx_buf_t  *b;

    b = &r->upstream->buffer;

    rest = b->pos + size;
    last = b->last;
    b->last = rest;

    rc = ctx->process_header(r);

    /* it may have reset the buffer */

    b->pos = rest;
    b->last = last;

    return rc;
}


static void
ngx_http_interim_compact(ngx_http_request_t *r)
{
    u_char     *start;
    ngx_buf_t  *b;

    b = &r->upstream->buffer;
    start = ngx_http_interim_start(r);

    if (b->pos > start) {
        b->last = ngx_movemem(start, b->pos, b->last - b->pos);
        b->pos = start;
    }
}


/* the start of the buffer, after the data that a cache keeps there */

u_char *
ngx_http_interim_start(ngx_http_request_t *r)
{
#if (NGX_HTTP_CACHE)
    if (r->cache) {
        return r->upstream->buffer.start + r->cache->header_start;
    }
#endif

    return r->upstream->buffer.start;
}


/*
 * Whether the buffer, which must begin with a record, ends with the complete
 * END_REQUEST record of a completed request.
 */

ngx_uint_t
ngx_http_interim_ended(ngx_http_request_t *r)
{
    u_char                     *p, *last;
    size_t                      size;
    ngx_http_interim_record_t   record;

    last = r->upstream->buffer.last;

    for (p = ngx_http_interim_start(r);
         last - p >= NGX_HTTP_INTERIM_HEAD_SIZE;
         p += size)
    {
        if (ngx_http_interim_read_head(p, &record) != NGX_OK) {
            return 0;
        }

        size = NGX_HTTP_INTERIM_HEAD_SIZE + record.length + record.padding;

        if ((size_t) (last - p) < size) {
            return 0;
        }

        if (record.type == NGX_HTTP_INTERIM_END_REQUEST) {
            return record.length == NGX_HTTP_INTERIM_END_SIZE
                   && p[NGX_HTTP_INTERIM_HEAD_SIZE + 4] == 0
                   && p + size == last;
        }

        if (record.type != NGX_HTTP_INTERIM_STDOUT
            && record.type != NGX_HTTP_INTERIM_STDERR)
        {
            return 0;
        }
    }

    return 0;
}
