
/*
 * Field sections of HTTP/2 and HTTP/3: literals without Huffman coding and
 * without indexing, so that neither side's dynamic table changes.
 *
 * Uses only nginx.
 */


#include "ngx_http_interim.h"


/* the maximum size of an encoded buffer size, with any prefix */

#define NGX_HTTP_INTERIM_INT_SIZE  6


/* an upper bound, the same for HPACK and QPACK */

size_t
ngx_http_interim_section_size(ngx_http_interim_t *interim)
{
    size_t      size;
    ngx_uint_t  i;

    /* prefix or table size update, then :status */

    size = 2 + 2 + 1 + 3;

    for (i = 0; i < interim->nfields; i++) {
        size += NGX_HTTP_INTERIM_INT_SIZE + interim->fields[i].name.len
                + NGX_HTTP_INTERIM_INT_SIZE + interim->fields[i].value.len;
    }

    return size;
}


/*
 * The length of the name begins in its own byte in HPACK (prefix 7), and in the
 * first byte of the field line in QPACK (prefix 3) (RFC 7541, section 6.2.2;
 * RFC 9204, section 4.5.6).
 */

u_char *
ngx_http_interim_copy_fields(u_char *p, ngx_http_interim_t *interim,
    ngx_uint_t prefix)
{
    ngx_uint_t                 i;
    ngx_http_interim_field_t  *field;

    for (i = 0; i < interim->nfields; i++) {
        field = &interim->fields[i];

        if (prefix == 7) {
            *p++ = 0;
            p = ngx_http_interim_prefix_int(p, 0, prefix, field->name.len);

        } else {
            p = ngx_http_interim_prefix_int(p, 0x20, prefix, field->name.len);
        }

        ngx_strlow(p, field->name.data, field->name.len);
        p += field->name.len;

        p = ngx_http_interim_prefix_int(p, 0, 7, field->value.len);
        p = ngx_cpymem(p, field->value.data, field->value.len);
    }

    return p;
}


/* RFC 7541, section 5.1 */

u_char *
ngx_http_interim_prefix_int(u_char *p, u_char flags, ngx_uint_t prefix,
    size_t value)
{
    size_t  max;

    max = ((size_t) 1 << prefix) - 1;

    if (value < max) {
        *p++ = flags | (u_char) value;
        return p;
    }

    *p++ = flags | (u_char) max;

    for (value -= max; value >= 128; value >>= 7) {
        *p++ = 0x80 | (u_char) (value & 0x7f);
    }

    *p++ = (u_char) value;

    return p;
}
