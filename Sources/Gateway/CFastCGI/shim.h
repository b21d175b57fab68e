/* libfcgi's multi-threaded interface; fcgi_stdio.h redefines stdio and stays out. */
#include <fcgiapp.h>
#include <fastcgi.h>
