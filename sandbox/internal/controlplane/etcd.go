package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// etcdTimeout is for a busy machine; it takes a fraction of a second on an idle one.
const etcdTimeout = 2 * time.Minute

// maxSocketPath is what the smallest of the supported systems allows.
const maxSocketPath = 100

// Etcd is the embedded store, reachable through a socket only this user may open.
type Etcd struct {
	server    *embed.Etcd
	socketDir string // to remove at the end; empty when the socket lies in the state folder
	Endpoint  string
}

// StartEtcd opens the store in dir. The store is for throw-away clusters: it
// survives the death of the process, not that of the host.
func StartEtcd(dir string, logger *zap.Logger) (*Etcd, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	e := &Etcd{}
	sockets := dir
	if len(filepath.Join(dir, "client.sock")) > maxSocketPath {
		tmp, err := os.MkdirTemp("", "etcd")
		if err != nil {
			return nil, err
		}
		sockets, e.socketDir = tmp, tmp
	}
	client := url.URL{Scheme: "unix", Path: filepath.Join(sockets, "client.sock")}
	// etcd listens for peers on the host part alone; no member ever calls here.
	peer := url.URL{Scheme: "unix", Host: filepath.Join(sockets, "peer.sock")}
	for _, stale := range []string{client.Path, peer.Host} {
		if err := os.Remove(stale); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}

	cfg := embed.NewConfig()
	cfg.Name = "sandbox"
	cfg.Dir = filepath.Join(dir, "data")
	cfg.ListenClientUrls = []url.URL{client}
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.ListenPeerUrls = []url.URL{peer}
	// A single member never dials itself; the name only has to stay the same between runs.
	cfg.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true
	cfg.QuotaBackendBytes = 8 << 30
	// A member without peers may elect itself at once.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)

	server, err := embed.StartEtcd(cfg)
	if err != nil {
		e.removeSockets()
		return nil, err
	}
	e.server, e.Endpoint = server, client.String()
	select {
	case <-server.Server.ReadyNotify():
		return e, nil
	case err = <-server.Err():
	case <-time.After(etcdTimeout):
		err = fmt.Errorf("not ready after %s", etcdTimeout)
	}
	e.Stop()
	return nil, err
}

// Stop ends the store.
func (e *Etcd) Stop() {
	e.server.Close()
	e.removeSockets()
}

func (e *Etcd) removeSockets() {
	if e.socketDir != "" {
		_ = os.RemoveAll(e.socketDir)
	}
}

// CheckEtcdData says whether the data an earlier run left in dir can be
// continued; no data is fine. etcd itself ends the process over unreadable
// data, so it is looked at first.
func CheckEtcdData(dir string) error {
	member := filepath.Join(dir, "data", "member")
	path := filepath.Join(member, "snap", "db")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if wal.Exist(filepath.Join(member, "wal")) {
			return fmt.Errorf("%s is missing beside its log", path)
		}
		return nil
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return fmt.Errorf("%s is locked by another process", path)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer db.Close()
	if err := db.View(func(tx *bolt.Tx) error {
		if tx.Bucket([]byte("key")) == nil {
			return errors.New("holds no keys")
		}
		return nil
	}); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if _, err := wal.ValidSnapshotEntries(zap.NewNop(), filepath.Join(member, "wal")); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(member, "wal"), err)
	}
	return nil
}
