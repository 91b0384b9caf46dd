package controlplane

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// TestEtcdKeepsData: the store is found again, also in a folder whose name is
// too long for a socket.
func TestEtcdKeepsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long", 30))
	if err := CheckEtcdData(dir); err != nil {
		t.Errorf("a folder that does not exist: %v", err)
	}
	connect := func(e *Etcd) *clientv3.Client {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return client
	}
	e, err := StartEtcd(dir, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(e).Put(t.Context(), "a", "b"); err != nil {
		t.Fatal(err)
	}
	sockets := e.socketDir
	if sockets == "" {
		t.Error("the socket lies in a folder with a long name")
	}
	e.Stop()
	if _, err := os.Stat(sockets); err == nil {
		t.Errorf("%s is left over", sockets)
	}
	if err := CheckEtcdData(dir); err != nil {
		t.Errorf("after a clean stop: %v", err)
	}
	if e, err = StartEtcd(dir, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	got, err := connect(e).Get(t.Context(), "a")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "b" {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestCheckEtcdDataFindsDamage(t *testing.T) {
	fresh := func(t *testing.T) (dir, db, wal string) {
		dir = t.TempDir()
		e, err := StartEtcd(dir, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		e.Stop()
		logs, err := filepath.Glob(filepath.Join(dir, "data", "member", "wal", "*.wal"))
		if err != nil || len(logs) == 0 {
			t.Fatalf("no log: %v", err)
		}
		return dir, filepath.Join(dir, "data", "member", "snap", "db"), logs[0]
	}
	t.Run("a cut database", func(t *testing.T) {
		dir, db, _ := fresh(t)
		if err := os.Truncate(db, 100); err != nil {
			t.Fatal(err)
		}
		if err := CheckEtcdData(dir); err == nil {
			t.Error("not found")
		}
	})
	t.Run("no database", func(t *testing.T) {
		dir, db, _ := fresh(t)
		if err := os.Remove(db); err != nil {
			t.Fatal(err)
		}
		if err := CheckEtcdData(dir); err == nil {
			t.Error("not found")
		}
	})
	t.Run("a flipped bit in the log", func(t *testing.T) {
		dir, _, wal := fresh(t)
		data, err := os.ReadFile(wal)
		if err != nil {
			t.Fatal(err)
		}
		data[40] ^= 1
		if err := os.WriteFile(wal, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := CheckEtcdData(dir); err == nil {
			t.Error("not found")
		}
	})
}
