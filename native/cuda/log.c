/* What the library says on stderr: one write a line, so that lines of many processes do not mix. */
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>
#include "log.h"

void log_error(const char *format, ...)
{
	char text[512] = "elastic-gpu: ";
	va_list args;
	va_start(args, format);
	int n = 13 + vsnprintf(text + 13, sizeof text - 14, format, args);
	va_end(args);
	if (n > (int)sizeof text - 2)
		n = sizeof text - 2;
	text[n++] = '\n';
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		return;
}
