/* libcurl's easy interface. curl_easy_setopt and curl_easy_getinfo are variadic, which Swift cannot call, so there is
   one typed wrapper for each kind of argument. */
#ifndef SPOOLGATE_CURL_SHIM_H
#define SPOOLGATE_CURL_SHIM_H

#include <curl/curl.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo

/* An enumerator in some versions of libcurl, a number in others. */
static inline long spoolgate_curl_netrc_required(void) {
    return CURL_NETRC_REQUIRED;
}

static inline CURLcode spoolgate_curl_set_long(CURL *easy, CURLoption option, long value) {
    return curl_easy_setopt(easy, option, value);
}

static inline CURLcode spoolgate_curl_set_offset(CURL *easy, CURLoption option, curl_off_t value) {
    return curl_easy_setopt(easy, option, value);
}

static inline CURLcode spoolgate_curl_set_pointer(
    CURL *easy, CURLoption option, const void *value) {
    return curl_easy_setopt(easy, option, value);
}

/* Sets a callback of libcurl and its context. */
#define SPOOLGATE_SETTER(name, option, result, ...) \
    static inline CURLcode spoolgate_curl_set_##name( \
        CURL *easy, void *context, result (*call)(__VA_ARGS__)) { \
        CURLcode code = curl_easy_setopt(easy, CURLOPT_##option##FUNCTION, call); \
        return code ? code : curl_easy_setopt(easy, CURLOPT_##option##DATA, context); \
    }

SPOOLGATE_SETTER(head_function, HEADER, size_t, char *, size_t, size_t, void *)
SPOOLGATE_SETTER(write_function, WRITE, size_t, char *, size_t, size_t, void *)
SPOOLGATE_SETTER(read_function, READ, size_t, char *, size_t, size_t, void *)
SPOOLGATE_SETTER(seek, SEEK, int, void *, curl_off_t, int)
SPOOLGATE_SETTER(prerequest, PREREQ, int, void *, char *, char *, int, int)
SPOOLGATE_SETTER(progress, XFERINFO, int, void *, curl_off_t, curl_off_t, curl_off_t, curl_off_t)
SPOOLGATE_SETTER(open_socket, OPENSOCKET, curl_socket_t, void *, curlsocktype, struct curl_sockaddr *)
SPOOLGATE_SETTER(close_socket, CLOSESOCKET, int, void *, curl_socket_t)

static inline CURLcode spoolgate_curl_get_long(CURL *easy, CURLINFO info, long *value) {
    return curl_easy_getinfo(easy, info, value);
}

static inline CURLcode spoolgate_curl_get_offset(CURL *easy, CURLINFO info, curl_off_t *value) {
    return curl_easy_getinfo(easy, info, value);
}

/* The file of the system's certificate authorities, or NULL if this libcurl was built without one. */
static inline const char *spoolgate_curl_authorities(CURL *easy) {
    char *path = NULL;

    curl_easy_getinfo(easy, CURLINFO_CAINFO, &path);
    return path;
}

/* CURL_GLOBAL_DEFAULT is a macro with a cast. */
static inline CURLcode spoolgate_curl_global_init(void) {
    return curl_global_init(CURL_GLOBAL_DEFAULT);
}

#endif
