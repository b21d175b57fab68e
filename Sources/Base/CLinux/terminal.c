#define _GNU_SOURCE
#include "CLinux.h"

#include <locale.h>
#include <pthread.h>
#include <wchar.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t unicode;

static void open_locale(void) {
    unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

int spoolgate_columns(uint32_t scalar) {
    locale_t before;
    int columns;

    pthread_once(&once, open_locale);
    if (unicode == (locale_t)0) {
        return 1;
    }
    before = uselocale(unicode);
    columns = wcwidth((wchar_t)scalar);
    uselocale(before);
    return columns > 0 ? columns : 0;
}
