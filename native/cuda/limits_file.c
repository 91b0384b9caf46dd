/* The limits file: one "key value" a line, written by the agent. What it does not say is not granted. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "limits_file.h"

#define FAIL(...) do { snprintf(why, why_size, __VA_ARGS__); return false; } while (0)

static bool parse_switch(const char *s, bool *out)
{
	*out = !strcmp(s, "on");
	return *out || !strcmp(s, "off");
}

static bool parse_bytes(const char *s, uint64_t *out)
{
	char *end;
	errno = 0;
	*out = strtoull(s, &end, 10);
	return *s >= '0' && *s <= '9' && !*end && !errno;
}

/* "30" or "12.5": percent, read as hundredths. */
static bool parse_percent(const char *s, unsigned *out)
{
	char *end;
	unsigned long whole = strtoul(s, &end, 10), part = 0;

	if (*s < '0' || *s > '9' || whole > 100)
		return false;
	if (*end == '.') {
		for (int i = 0; i < 2; i++) {
			char digit = end[1] >= '0' && end[1] <= '9' ? *++end : '0';
			part = part * 10 + (unsigned)(digit - '0');
		}
		end++;
	}
	*out = (unsigned)(whole * 100 + part);
	return !*end && *out >= 1 && *out <= 10000;
}

static bool parse_latency(const char *s, enum latency *out)
{
	*out = !strcmp(s, "low") ? LATENCY_LOW : !strcmp(s, "throughput") ? LATENCY_THROUGHPUT : LATENCY_AUTO;
	return *out != LATENCY_AUTO || !strcmp(s, "auto");
}

static bool parse_sharing(const char *s, enum sharing *out)
{
	*out = !strcmp(s, "space") ? SHARING_SPACE : SHARING_TIME;
	return *out == SHARING_SPACE || !strcmp(s, "time");
}

static bool parse_device(char *rest, struct device_limit *d, char *why, size_t why_size)
{
	char *save = NULL, *uuid = strtok_r(rest, " \t", &save), *key;

	if (!uuid || strlen(uuid) >= sizeof d->uuid)
		FAIL("device needs a UUID");
	*d = (struct device_limit){.compute = 10000};
	strcpy(d->uuid, uuid);
	while ((key = strtok_r(NULL, " \t", &save))) {
		char *value = strtok_r(NULL, " \t", &save);
		bool ok = value &&
			(!strcmp(key, "memory") ? parse_bytes(value, &d->memory) :
			 !strcmp(key, "compute") ? parse_percent(value, &d->compute) :
			 !strcmp(key, "lend") ? parse_switch(value, &d->lend) :
			 !strcmp(key, "latency") ? parse_latency(value, &d->latency) :
			 !strcmp(key, "sharing") ? parse_sharing(value, &d->sharing) : false);
		if (!ok)
			FAIL("device %s: bad %s", uuid, key);
	}
	return true;
}

static bool parse_line(char *line, int number, struct limits *l, char *why, size_t why_size)
{
	char *rest = line + strcspn(line, " \t");
	uint64_t n = 0;
	bool ok;

	if (*rest)
		*rest++ = 0;
	rest += strspn(rest, " \t");
	if (!strcmp(line, "device")) {
		if (l->devices > MAX_DEVICES)
			FAIL("line %d: more than %d devices", number, MAX_DEVICES);
		return parse_device(rest, &l->device[l->devices++], why, why_size);
	}
	if (!strcmp(line, "container")) {
		ok = *rest && strlen(rest) < sizeof l->container;
		if (ok)
			strcpy(l->container, rest);
	} else if (!strcmp(line, "swap")) {
		ok = parse_switch(rest, &l->swap);
	} else if (!strcmp(line, "oversubscribe")) {
		ok = parse_switch(rest, &l->oversubscribe);
	} else if (!strcmp(line, "quantum-ms")) {
		ok = parse_bytes(rest, &n) && n >= 1 && n <= 3600000;
		l->quantum_ms = (unsigned)n;
	} else if (!strcmp(line, "control")) {
		l->control_any = !strcmp(rest, "any");
		ok = l->control_any || !strcmp(rest, "agent");
	} else {
		FAIL("line %d: unknown key \"%s\"", number, line);
	}
	if (!ok)
		FAIL("line %d: bad value for %s", number, line);
	return true;
}

bool limits_parse(const char *text, struct limits *out, char *why, size_t why_size)
{
	struct limits l = {.quantum_ms = 10000};
	char line[512];
	int number = 0;

	for (const char *p = text; *p;) {
		size_t n = strcspn(p, "\n");
		if (n >= sizeof line)
			FAIL("line %d: too long", number + 1);
		memcpy(line, p, n);
		line[n] = 0;
		p += n + (p[n] == '\n');
		if (++number == 1) {
			if (strcmp(line, "elastic-gpu 1"))
				FAIL("not a limits file of version 1");
		} else if (*line && *line != '#' && !parse_line(line, number, &l, why, why_size)) {
			return false;
		}
	}
	if (!number || !*l.container)
		FAIL("no container named");
	for (int i = 0; i < l.devices; i++)
		if (l.device[i].sharing == SHARING_SPACE && (l.devices > 1 || l.oversubscribe))
			FAIL("sharing space is for one card, and without oversubscribe");
	*out = l;
	return true;
}

bool limits_read(const char *path, struct limits *out, char *why, size_t why_size)
{
	char text[16384];
	size_t n = 0;
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		FAIL("%s: %s", path, strerror(errno));
	while (n < sizeof text - 1 && (got = read(fd, text + n, sizeof text - 1 - n)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			break;
		n += (size_t)got;
	}
	close(fd);
	text[n] = 0;
	return limits_parse(text, out, why, why_size);
}

const struct device_limit *limits_for(const struct limits *l, const char *uuid)
{
	static const struct device_limit nothing = {.compute = 1};
	const struct device_limit *any = &nothing;

	for (int i = 0; i < l->devices; i++) {
		if (!strcmp(l->device[i].uuid, uuid))
			return &l->device[i];
		if (!strcmp(l->device[i].uuid, "*"))
			any = &l->device[i];
	}
	return any;
}
