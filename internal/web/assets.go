package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// The page, as "npm run build" in web/ wrote it.
//
//go:embed dist
var dist embed.FS

// asset is a file as it is sent.
type asset struct {
	kind, tag   string
	plain, gzip []byte
}

// assets are the page's files. Any other path is a view, which the page itself finds.
type assets map[string]*asset

var kindsOfFiles = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

func newAssets() assets {
	all := assets{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		all[strings.TrimPrefix(name, "dist")] = &asset{kind: kindsOfFiles[path.Ext(name)], tag: `"` + hex.EncodeToString(sum[:8]) + `"`, plain: data, gzip: compress(data)}
		return nil
	})
	if err != nil {
		panic(err) // files in the program itself
	}
	return all
}

func compress(data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is a valid one
	_, _ = w.Write(data)
	_ = w.Close()
	return b.Bytes()
}

func (all assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file := all[r.URL.Path]
	if file == nil {
		if strings.HasPrefix(r.URL.Path, "/assets/") || all["/index.html"] == nil {
			http.NotFound(w, r)
			return
		}
		file = all["/index.html"]
	}
	h := w.Header()
	h.Set("Content-Type", file.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	h.Set("ETag", file.tag)
	if r.Header.Get("If-None-Match") == file.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		_, _ = w.Write(file.gzip)
		return
	}
	_, _ = w.Write(file.plain)
}
