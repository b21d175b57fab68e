
/*
 * Interim responses over HTTP/1.1: a status line and a header section.
 *
 * Uses: output.
 */


#include "ngx_http_interim.h"


ngx_int_t
ngx_http_interim_send_v1(ngx_http_request_t *r, ngx_http_interim_t *interim)
{
    u_char                     *p;
    size_t                      size;
    ngx_uint_t                  i;
    ngx_http_interim_field_t   *field;
    ngx_http_interim_output_t  *out;

    size = sizeof("HTTP/1.1 100 " CRLF CRLF) - 1 + interim->reason.len;

    for (i = 0; i < interim->nfields; i++) {
        field = &interim->fields[i];
        size += field->name.len + sizeof(": " CRLF) - 1 + field->value.len;
    }

    out = ngx_http_interim_output(r, size);
    if (out == NULL) {
        return NGX_DECLINED;
    }

    p = ngx_sprintf(out->buf.last, "HTTP/1.1 %ui %V" CRLF,
                    interim->status, &interim->reason);

    for (i = 0; i < interim->nfields; i++) {
        field = &interim->fields[i];
        p = ngx_cpymem(p, field->name.data, field->name.len);
        *p++ = ':'; *p++ = ' ';
        p = ngx_cpymem(p, field->value.data, field->value.len);
        *p++ = CR; *p++ = LF;
    }

    *p++ = CR; *p++ = LF;

    out->buf.last = p;

    return ngx_http_interim_write(r, out);
}
