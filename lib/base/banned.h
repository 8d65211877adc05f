#ifndef KML_BASE_BANNED_H
#define KML_BASE_BANNED_H

/* Functions that cannot be used safely. The compiler is told to include this header first, so a use does not compile. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf gets strtok atoi atol atof rand srand gmtime localtime asctime ctime mktemp tmpnam system popen

#endif
