
/*
 * Interim responses over HTTP/3: a HEADERS frame, written like content.
 *
 * Uses: section and output.
 */


#include "ngx_http_interim.h"


#if (NGX_HTTP_V3)

static u_char *ngx_http_interim_varlen_int(u_char *p, size_t value);


ngx_int_t
ngx_http_interim_send_v3(ngx_http_request_t *r, ngx_http_interim_t *interim)
{
    u_char                     *p, *section;
    size_t                      size, head;
    ngx_http_v3_session_t      *h3c;
    ngx_http_interim_output_t  *out;

    /* type and length of the HEADERS frame (RFC 9114, section 7.2.2) */

    head = 1 + 4;

    out = ngx_http_interim_output(r,
                                head + ngx_http_interim_section_size(interim));
    if (out == NULL) {
        return NGX_DECLINED;
    }

    section = out->buf.start + head;

    /* no dynamic table: Required Insert Count and Base are 0 */

    p = section;
    *p++ = 0;
    *p++ = 0;

    /* ":status", with its name from index 24 of the static table */

    p = ngx_http_interim_prefix_int(p, 0x50, 4, 24);
    *p++ = 3;
    p = ngx_sprintf(p, "%03ui", interim->status);

    p = ngx_http_interim_copy_fields(p, interim, 3);

    out->buf.last = p;

    size = p - section;

    p = out->buf.start;
    *p++ = 0x1;
    (void) ngx_http_interim_varlen_int(p, size);

    size += head;

    h3c = ngx_http_v3_get_session(r->connection);
    h3c->total_bytes += size;
    h3c->payload_bytes += size - head;

    r->header_size += size;

    return ngx_http_interim_write(r, out);
}


/* always in four bytes (RFC 9000, section 16) */

static u_char *
ngx_http_interim_varlen_int(u_char *p, size_t value)
{
    *p++ = 0x80 | (u_char) (value >> 24);
    *p++ = (u_char) (value >> 16);
    *p++ = (u_char) (value >> 8);
    *p++ = (u_char) value;

    return p;
}

#endif
