#define _GNU_SOURCE
#include "CLinux.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

void spoolgate_name_thread(const char *name) {
    char shown[16];

    /* The name is only informative: it may be truncated or missing. */
    if (snprintf(shown, sizeof(shown), "%s", name) >= 0) {
        pthread_setname_np(pthread_self(), shown);
    }
}

void spoolgate_tune_memory(void) {
    mallopt(M_ARENA_MAX, 4);
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

void spoolgate_release_heap(void) {
    malloc_trim(0);
}

void spoolgate_release_stack(void) {
    static __thread char *low, *high;
    uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
    /* Not the address of a variable, because a memory checker keeps those elsewhere. */
    uintptr_t here = (uintptr_t) __builtin_frame_address(0);
    char *end;

    if (low == NULL) {
        pthread_attr_t attributes;
        void *address;
        size_t size;

        if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
            return;
        }
        if (pthread_attr_getstack(&attributes, &address, &size) == 0) {
            low = address;
            high = low + size;
        }
        pthread_attr_destroy(&attributes);
    }
    /* The frame of madvise itself is below `here` and needs a few words. */
    end = (char *) ((here - 512) & ~(page - 1));
    if (low != NULL && end > low && end < high) {
        madvise(low, (size_t) (end - low), MADV_DONTNEED);
    }
}
