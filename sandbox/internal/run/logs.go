package run

import (
	"flag"
	"fmt"
	"io"
	"log"
	"strconv"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"gopkg.in/natefinch/lumberjack.v2"
	"k8s.io/klog/v2"

	"github.com/elastic-ai/elastic/sandbox/internal/statedir"
)

// logs are the log files of one run. Each is bounded: a sandbox may run for weeks.
type logs struct {
	kubernetes, etcd, nodes io.WriteCloser
}

func openLogs(dir *statedir.Dir, verbosity int) (*logs, error) {
	open := func(name string) io.WriteCloser {
		return &lumberjack.Logger{Filename: dir.Log(name), MaxSize: 50, MaxBackups: 1}
	}
	l := &logs{kubernetes: open("kubernetes"), etcd: open("etcd"), nodes: open("nodes")}
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "v": strconv.Itoa(verbosity)} {
		if err := fs.Set(name, value); err != nil {
			return nil, fmt.Errorf("log flag %s: %w", name, err)
		}
	}
	klog.SetOutput(l.kubernetes)
	log.SetOutput(l.kubernetes) // net/http and others use the standard logger
	return l, nil
}

func (l *logs) etcdLogger(verbosity int) *zap.Logger {
	level := zapcore.WarnLevel
	if verbosity > 0 {
		level = zapcore.InfoLevel
	}
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(l.etcd), level))
}

func (l *logs) close() {
	klog.Flush()
	for _, w := range []io.Closer{l.kubernetes, l.etcd, l.nodes} {
		_ = w.Close()
	}
}
