/* The build identity that deploy/identify.sh writes into a linked program. */
#ifndef SPOOLGATE_CBUILD_H
#define SPOOLGATE_CBUILD_H

/* The identity, such as "82c1e4e"; empty if none was written. Valid for the lifetime of the process. */
const char *_Nonnull spoolgate_build(void);

#endif
