
/*
 * Parser of an interim response (RFC 3875, section 6.3), which is recognized
 * by its first line: "Status".
 *
 * An invalid block is dropped as a whole, and the request continues.
 *
 * Uses only nginx.
 */


#include "ngx_http_interim.h"


static ngx_int_t ngx_http_interim_parse_field(ngx_str_t *line,
    ngx_http_interim_field_t *field);
static ngx_uint_t ngx_http_interim_forbidden(ngx_http_request_t *r,
    ngx_str_t *name);
static u_char *ngx_http_interim_line(u_char *p, u_char *last, ngx_str_t *line);
static ngx_uint_t ngx_http_interim_text(ngx_str_t *s);
static void ngx_http_interim_trim(ngx_str_t *s);


static ngx_str_t  ngx_http_interim_status = ngx_string("status:");


/* fields for one connection or for message framing (RFC 9110, 7.6.1) */

static ngx_str_t  ngx_http_interim_forbidden_names[] = {
    ngx_string("connection"),
    ngx_string("content-length"),
    ngx_string("keep-alive"),
    ngx_string("proxy-connection"),
    ngx_string("status"),
    ngx_string("te"),
    ngx_string("trailer"),
    ngx_string("transfer-encoding"),
    ngx_string("upgrade"),
    ngx_null_string
};


/* NGX_AGAIN: the text is too short to decide */

ngx_int_t
ngx_http_interim_match(u_char *p, u_char *last)
{
    ngx_uint_t  i;

    for (i = 0; i < ngx_http_interim_status.len; i++, p++) {
        if (p == last) {
            return NGX_AGAIN;
        }

        if (ngx_tolower(*p) != ngx_http_interim_status.data[i]) {
            return NGX_DECLINED;
        }
    }

    while (p < last && (*p == ' ' || *p == '\t')) {
        p++;
    }

    for (i = 0; i < 3; i++, p++) {
        if (p == last) {
            return NGX_AGAIN;
        }

        if (*p < '0' || *p > '9' || (i == 0 && *p != '1')) {
            return NGX_DECLINED;
        }
    }

    if (p == last) {
        return NGX_AGAIN;
    }

    switch (*p) {
    case ' ':
    case '\t':
    case CR:
    case LF:
        return NGX_OK;
    }

    return NGX_DECLINED;
}


ngx_int_t
ngx_http_interim_parse(ngx_http_request_t *r, ngx_str_t *block,
    ngx_http_interim_t *interim)
{
    u_char                    *p, *last;
    ngx_str_t                  line;
    ngx_http_interim_field_t   field;

    p = block->data;
    last = p + block->len;

    p = ngx_http_interim_line(p, last, &line);

    line.data += ngx_http_interim_status.len;
    line.len -= ngx_http_interim_status.len;
    ngx_http_interim_trim(&line);

    interim->status = ngx_atoi(line.data, 3);
    interim->nfields = 0;

    line.data += 3;
    line.len -= 3;
    ngx_http_interim_trim(&line);
    interim->reason = line;

    if (!ngx_http_interim_text(&line)) {
        goto invalid;
    }

    for ( ;; ) {
        p = ngx_http_interim_line(p, last, &line);

        if (line.len == 0) {
            return NGX_OK;
        }

        if (ngx_http_interim_parse_field(&line, &field) != NGX_OK) {
            goto invalid;
        }

        if (ngx_http_interim_forbidden(r, &field.name)) {
            continue;
        }

        if (interim->nfields == NGX_HTTP_INTERIM_MAX_FIELDS) {
            ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                          "upstream sent interim response %ui with more "
                          "than %d fields, it is dropped",
                          interim->status, NGX_HTTP_INTERIM_MAX_FIELDS);
            return NGX_ERROR;
        }

        interim->fields[interim->nfields++] = field;
    }

invalid:

    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0,
                  "upstream sent interim response %ui with invalid line "
                  "\"%V\", it is dropped",
                  interim->status, &line);

    return NGX_ERROR;
}


static ngx_int_t
ngx_http_interim_parse_field(ngx_str_t *line, ngx_http_interim_field_t *field)
{
    u_char  *p, *last;

    /* RFC 9110, section 5.6.2: tchar */

    static uint32_t  token[] = {
        0x00000000, /* 0000 0000 0000 0000  0000 0000 0000 0000 */

                    /* ?>=< ;:98 7654 3210  /.-, +*)( '&%$ #"!  */
        0x03ff6cfa, /* 0000 0011 1111 1111  0110 1100 1111 1010 */

                    /* _^]\ [ZYX WVUT SRQP  ONML KJIH GFED CBA@ */
        0xc7fffffe, /* 1100 0111 1111 1111  1111 1111 1111 1110 */

                    /*  ~}| {zyx wvut srqp  onml kjih gfed cba` */
        0x57ffffff, /* 0101 0111 1111 1111  1111 1111 1111 1111 */

        0x00000000, /* 0000 0000 0000 0000  0000 0000 0000 0000 */
        0x00000000, /* 0000 0000 0000 0000  0000 0000 0000 0000 */
        0x00000000, /* 0000 0000 0000 0000  0000 0000 0000 0000 */
        0x00000000  /* 0000 0000 0000 0000  0000 0000 0000 0000 */
    };

    last = line->data + line->len;

    for (p = line->data; p < last && *p != ':'; p++) {
        if (!(token[*p >> 5] & (1U << (*p & 0x1f)))) {
            return NGX_ERROR;
        }
    }

    field->name.data = line->data;
    field->name.len = p - line->data;

    if (p == last
        || field->name.len == 0
        || field->name.len > NGX_HTTP_INTERIM_MAX_NAME)
    {
        return NGX_ERROR;
    }

    p++;

    field->value.data = p;
    field->value.len = last - p;
    ngx_http_interim_trim(&field->value);

    return ngx_http_interim_text(&field->value) ? NGX_OK : NGX_ERROR;
}


static ngx_uint_t
ngx_http_interim_forbidden(ngx_http_request_t *r, ngx_str_t *name)
{
    u_char       lowcase[NGX_HTTP_INTERIM_MAX_NAME];
    ngx_str_t   *forbidden;
    ngx_uint_t   hash;

    hash = ngx_hash_strlow(lowcase, name->data, name->len);

    for (forbidden = ngx_http_interim_forbidden_names;
         forbidden->len;
         forbidden++)
    {
        if (forbidden->len == name->len
            && ngx_memcmp(forbidden->data, lowcase, name->len) == 0)
        {
            return 1;
        }
    }

    /* fastcgi_hide_header, and the fields that nginx never forwards */

    return ngx_hash_find(&r->upstream->conf->hide_headers_hash, hash,
                         lowcase, name->len)
           != NULL;
}


/* the text must end with LF */

static u_char *
ngx_http_interim_line(u_char *p, u_char *last, ngx_str_t *line)
{
    u_char  *end;

    end = ngx_strlchr(p, last, LF);

    line->data = p;
    line->len = end - p;

    if (line->len && end[-1] == CR) {
        line->len--;
    }

    return end + 1;
}


static ngx_uint_t
ngx_http_interim_text(ngx_str_t *s)
{
    size_t  i;

    for (i = 0; i < s->len; i++) {
        if ((s->data[i] < 0x20 && s->data[i] != '\t') || s->data[i] == 0x7f) {
            return 0;
        }
    }

    return 1;
}


static void
ngx_http_interim_trim(ngx_str_t *s)
{
    while (s->len && (s->data[0] == ' ' || s->data[0] == '\t')) {
        s->data++;
        s->len--;
    }

    while (s->len
           && (s->data[s->len - 1] == ' ' || s->data[s->len - 1] == '\t'))
    {
        s->len--;
    }
}
