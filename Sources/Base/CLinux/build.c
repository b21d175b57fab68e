#include "CLinux.h"

/* deploy/identify.sh finds the section by this name and writes a NUL-terminated text to it. */
__attribute__((section(".spoolgate.build"), used, aligned(64))) static const char build[64] = "";

__attribute__((noinline)) const char *spoolgate_build(void) {
    const char *text = build;

    /* Keeps the compiler from using the empty text, which is replaced later. */
    __asm__("" : "+r"(text));
    return text;
}
