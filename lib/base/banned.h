#ifndef KML_BASE_BANNED_H
#define KML_BASE_BANNED_H

/* Functions that cannot be used safely. The compiler is told to include this header first: a use does not
 * compile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* With fortified headers clang sees these as macros, and only a name that is no macro can be poisoned. */
#undef sprintf
#undef vsprintf

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf gets strtok atoi atol atof
/* Not rand: a parameter in OpenSSL's headers has that name. tools/check_banned finds calls of it. */
#pragma GCC poison srand gmtime localtime asctime ctime mktemp tmpnam system popen

#endif
