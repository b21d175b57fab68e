/* libcurl's easy interface. curl_easy_setopt and curl_easy_getinfo are variadic, which Swift
   cannot call: one typed wrapper stands here for each kind of argument. The socket calls at
   the end are about the connections libcurl opens, and need macros and a variadic ioctl. */
#ifndef SPOOLGATE_CURL_SHIM_H
#define SPOOLGATE_CURL_SHIM_H

#include <curl/curl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#undef curl_easy_setopt
#undef curl_easy_getinfo

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

static inline CURLcode spoolgate_curl_set_string(CURL *easy, CURLoption option, const char *value) {
    return curl_easy_setopt(easy, option, value);
}

/* READFUNCTION, WRITEFUNCTION or HEADERFUNCTION with its *DATA. */
static inline CURLcode spoolgate_curl_set_data_function(
    CURL *easy, CURLoption function, size_t (*call)(char *, size_t, size_t, void *),
    CURLoption data, void *context) {
    CURLcode code = curl_easy_setopt(easy, function, call);
    return code ? code : curl_easy_setopt(easy, data, context);
}

static inline CURLcode spoolgate_curl_set_seek(
    CURL *easy, int (*call)(void *, curl_off_t, int), void *context) {
    CURLcode code = curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, call);
    return code ? code : curl_easy_setopt(easy, CURLOPT_SEEKDATA, context);
}

static inline CURLcode spoolgate_curl_set_progress(
    CURL *easy, int (*call)(void *, curl_off_t, curl_off_t, curl_off_t, curl_off_t),
    void *context) {
    CURLcode code = curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, call);
    if (!code) code = curl_easy_setopt(easy, CURLOPT_XFERINFODATA, context);
    return code ? code : curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
}

static inline CURLcode spoolgate_curl_set_prerequest(
    CURL *easy, int (*call)(void *, char *, char *, int, int), void *context) {
    CURLcode code = curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, call);
    return code ? code : curl_easy_setopt(easy, CURLOPT_PREREQDATA, context);
}

static inline CURLcode spoolgate_curl_set_open_socket(
    CURL *easy, curl_socket_t (*call)(void *, curlsocktype, struct curl_sockaddr *),
    void *context) {
    CURLcode code = curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, call);
    return code ? code : curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, context);
}

static inline CURLcode spoolgate_curl_set_close_socket(
    CURL *easy, int (*call)(void *, curl_socket_t), void *context) {
    CURLcode code = curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, call);
    return code ? code : curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, context);
}

static inline CURLcode spoolgate_curl_get_long(CURL *easy, CURLINFO info, long *value) {
    return curl_easy_getinfo(easy, info, value);
}

/* CURL_GLOBAL_DEFAULT is a cast macro. */
static inline CURLcode spoolgate_curl_global_init(void) {
    return curl_global_init(CURL_GLOBAL_DEFAULT);
}

/* socket(2), close-on-exec, for the address libcurl is about to connect to. */
static inline curl_socket_t spoolgate_curl_socket(const struct curl_sockaddr *address) {
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* close(2). */
static inline int spoolgate_curl_close(curl_socket_t socket) {
    return close(socket);
}

/* Whether the address is one of TCP, where segments can be held back. */
static inline int spoolgate_curl_is_tcp(const struct curl_sockaddr *address) {
    return address->family == AF_INET || address->family == AF_INET6;
}

/* Holds back (on 1) or lets go (on 0) segments that are not full. */
static inline int spoolgate_curl_cork(curl_socket_t socket, int on) {
    return setsockopt(socket, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
}

/* Bytes written to the socket that the peer has not taken yet; -1 when it cannot tell. */
static inline int spoolgate_curl_unsent(curl_socket_t socket) {
    int count = 0;
    return ioctl(socket, SIOCOUTQ, &count) == 0 ? count : -1;
}

/* What can be read at once, at most `size` bytes of it; 0 or less for nothing. */
static inline ssize_t spoolgate_curl_read(curl_socket_t socket, void *bytes, size_t size) {
    return recv(socket, bytes, size, MSG_DONTWAIT);
}

/* Whether something, the end included, can be read at once. */
static inline int spoolgate_curl_readable(curl_socket_t socket) {
    struct pollfd one = {.fd = socket, .events = POLLIN};
    return poll(&one, 1, 0) == 1;
}

#endif
