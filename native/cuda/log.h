/* What the library says on stderr. */
#ifndef ELASTIC_LOG_H
#define ELASTIC_LOG_H

/* One line on stderr. */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
