/* The place in a linked program where deploy/identify.sh writes which build it is. */
#ifndef SPOOLGATE_CBUILD_H
#define SPOOLGATE_CBUILD_H

/* The identity of the build, such as "82c1e4e"; empty if nothing was written. Valid for as long as the process. */
const char *_Nonnull spoolgate_build(void);

#endif
