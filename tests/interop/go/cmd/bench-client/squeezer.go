package main

import (
	"compress/gzip"
	"io"
	"sync"

	"google.golang.org/grpc/encoding"
)

// squeezer is gzip for grpc-go. Its own package for that registers itself where it is linked in, and from
// then on every call of the program offers gzip: here the command line decides. Writers and readers are
// kept for reuse, as there.
type squeezer struct{ writers, readers sync.Pool }

const gzipName = "gzip"

func registerGzip() { encoding.RegisterCompressor(&squeezer{}) }

func (*squeezer) Name() string { return gzipName }

type pooledWriter struct {
	*gzip.Writer
	pool *sync.Pool
}

func (s *squeezer) Compress(out io.Writer) (io.WriteCloser, error) {
	if w, ok := s.writers.Get().(*pooledWriter); ok {
		w.Reset(out)
		return w, nil
	}
	return &pooledWriter{gzip.NewWriter(out), &s.writers}, nil
}

func (w *pooledWriter) Close() error {
	defer w.pool.Put(w)
	return w.Writer.Close()
}

type pooledReader struct {
	*gzip.Reader
	pool *sync.Pool
}

func (s *squeezer) Decompress(in io.Reader) (io.Reader, error) {
	r, ok := s.readers.Get().(*pooledReader)
	if !ok {
		fresh, err := gzip.NewReader(in)
		if err != nil {
			return nil, err
		}
		return &pooledReader{fresh, &s.readers}, nil
	}
	if err := r.Reset(in); err != nil {
		s.readers.Put(r)
		return nil, err
	}
	return r, nil
}

func (r *pooledReader) Read(into []byte) (int, error) {
	n, err := r.Reader.Read(into)
	if err == io.EOF {
		r.pool.Put(r)
	}
	return n, err
}
