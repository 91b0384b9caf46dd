/*
 * elastic-gpu-arbiter: gives out the turns on a node's cards among containers that share them.
 *
 *   elastic-gpu-arbiter FOLDER           the agent's folder of shares, as /var/lib/elastic-gpu/gpushare
 *   elastic-gpu-arbiter check FOLDER     exits 0 if an arbiter serves that folder and gets on
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "arbiter.h"

static void stop(int signal)
{
	(void)signal;
	_exit(0); /* nothing is lost: containers limit themselves until the next one comes */
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "check"))
		return arbiter_check(argv[2]);
	if (argc != 2 || argv[1][0] == '-') {
		bool help = argc == 2 && !strcmp(argv[1], "--help");
		fprintf(help ? stdout : stderr, "usage: elastic-gpu-arbiter [check] FOLDER\n");
		return help ? 0 : 2;
	}
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	return arbiter_run(argv[1]);
}
