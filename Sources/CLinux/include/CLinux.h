/* What Swift's Glibc module does not have: GNU calls and constants, as plain prototypes.
   _GNU_SOURCE is defined in the .c files only; defining it here would split the C types that
   Swift sees. */
#ifndef SPOOLGATE_CLINUX_H
#define SPOOLGATE_CLINUX_H

#include "disk.h"
#include "process.h"
#include "socket.h"
#include "thread.h"

#endif
