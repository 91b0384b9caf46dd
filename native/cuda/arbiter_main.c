/*
 * elastic-gpu-arbiter: gives out the turns on a node's cards among containers that share them.
 *
 *   elastic-gpu-arbiter FOLDER           the agent's folder of shares, as /var/lib/elastic-gpu/gpushare
 *   elastic-gpu-arbiter check FOLDER     exits 0 if an arbiter serves that folder and gets on
 *
 * With --until-stdin-closes it ends when its standard input does, as the other programs of a local cluster.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "arbiter.h"
#include "system.h"

static void stop(int signal)
{
	(void)signal;
	_exit(0); /* nothing is lost: containers limit themselves until the next one comes */
}

static void *end_with_stdin(void *unused)
{
	char ignored[256];

	while (read(STDIN_FILENO, ignored, sizeof ignored) > 0)
		;
	stop(0);
	return unused;
}

int main(int argc, char **argv)
{
	bool until_stdin_closes = argc > 1 && !strcmp(argv[argc - 1], "--until-stdin-closes");

	argc -= until_stdin_closes;
	if (argc == 3 && !strcmp(argv[1], "check"))
		return arbiter_check(argv[2]);
	if (argc != 2 || argv[1][0] == '-') {
		bool help = argc == 2 && !strcmp(argv[1], "--help");
		fprintf(help ? stdout : stderr, "usage: elastic-gpu-arbiter [check] FOLDER [--until-stdin-closes]\n");
		return help ? 0 : 2;
	}
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	if (until_stdin_closes && !thread_start(end_with_stdin, NULL))
		return 1;
	return arbiter_run(argv[1]);
}
