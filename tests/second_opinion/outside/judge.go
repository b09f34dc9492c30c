// What Go's checksum database code says of our ledgers: judge VECTORS FOLDER…, with folders that judge.py wrote.
// Notes are opened by golang.org/x/mod/sumdb/note; proofs, tiles and roots are those of sumdb/tlog.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("judge.go: ")
	vectors(filepath.Join(os.Args[1], "merkle", "proofs.ndjson"))
	for _, folder := range os.Args[2:] {
		ledger(folder)
	}
}

func must(err error, what ...interface{}) {
	if err != nil {
		log.Fatalln(append(what, err)...)
	}
}

// proof is an entry under a checkpoint, as a bundle has it.
type proof struct {
	Origin string
	Index  int64
	Size   int64
	Root   string
	Path   []string
	Entry  string
}

// tiles reads hash tiles from files. Ours have height 8, which C2SP leaves out of the path.
type tiles struct{ folder string }

func (t tiles) Height() int { return 8 }

func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var data [][]byte
	for _, tile := range wanted {
		path := "tile/" + strings.TrimPrefix(tile.Path(), "tile/8/")
		one, err := os.ReadFile(filepath.Join(t.folder, path))
		if err != nil {
			return nil, err
		}
		data = append(data, one)
	}
	return data, nil
}

func (t tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func ledger(folder string) {
	var verifiers []note.Verifier
	for _, vkey := range strings.Fields(string(read(folder, "vkeys"))) {
		verifier, err := note.NewVerifier(vkey)
		must(err, vkey)
		verifiers = append(verifiers, verifier)
	}
	checkpoint := read(folder, "checkpoint")
	opened, err := note.Open(checkpoint, note.VerifierList(verifiers...))
	must(err, "the checkpoint does not open")
	altered := bytes.Replace(checkpoint, []byte("\n"), []byte("x\n"), 1)
	if _, err := note.Open(altered, note.VerifierList(verifiers...)); err == nil {
		log.Fatalln("a checkpoint of another origin opens")
	}
	lines := strings.Split(opened.Text, "\n")
	if lines[0] != opened.Sigs[0].Name {
		log.Fatalln("the origin is not the name of the key")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	must(err)
	root := hash(lines[2])

	// Reading hashes by way of tiles checks the tiles against the root.
	reader := tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, tiles{folder})
	entries := entries(folder, size)
	for index, entry := range entries {
		path, err := tlog.ProveRecord(size, int64(index), reader)
		must(err, "tiles, at entry", index)
		must(tlog.CheckRecord(path, size, root, int64(index), tlog.RecordHash(entry)), "entry", index)
	}

	var proofs []proof
	must(json.Unmarshal(read(folder, "proofs.json"), &proofs))
	judged := 0
	for _, one := range proofs {
		if one.Origin != lines[0] {
			continue
		}
		then, leaf := hash(one.Root), tlog.RecordHash([]byte(one.Entry))
		must(tlog.CheckRecord(hashes(one.Path), one.Size, then, one.Index, leaf), "proof of entry", one.Index)
		path, err := tlog.ProveTree(size, one.Size, reader)
		must(err, "from", one.Size, "to", size)
		must(tlog.CheckTree(path, size, root, one.Size, then), "from", one.Size, "to", size)
		judged++
	}
	if judged == 0 {
		log.Fatalln("no proof of the ledger was judged")
	}
	fmt.Printf("sumdb: a note, the tiles of %d entries and %d proofs of %s\n", len(entries), judged, lines[0])
}

// entries are those of the entry tiles, each with its length before it.
func entries(folder string, size int64) [][]byte {
	var found [][]byte
	for tile := int64(0); tile*256 < size; tile++ {
		width := size - tile*256
		if width > 256 {
			width = 256
		}
		path := tlog.Tile{H: 8, L: -1, N: tile, W: int(width)}.Path()
		data := read(folder, "tile/entries/"+strings.TrimPrefix(path, "tile/8/data/"))
		for len(data) > 0 {
			length := binary.BigEndian.Uint16(data)
			found = append(found, data[2:2+length])
			data = data[2+length:]
		}
	}
	if int64(len(found)) != size {
		log.Fatalln("the entry tiles do not have", size, "entries")
	}
	return found
}

// vectors are the proofs over leaves that are the decimal digits of their index.
func vectors(file string) {
	input, err := os.Open(file)
	must(err)
	defer input.Close()
	stored := []tlog.Hash{}
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		found := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			found[i] = stored[index]
		}
		return found, nil
	})
	leaves, judged := int64(0), 0
	grow := func(size int64) {
		for ; leaves < size; leaves++ {
			more, err := tlog.StoredHashes(leaves, []byte(strconv.FormatInt(leaves, 10)), reader)
			must(err)
			stored = append(stored, more...)
		}
	}
	scanner := bufio.NewScanner(input)
	for scanner.Scan() {
		var one struct {
			Root                *string
			Index               *int64
			Size, First, Second int64
			Path                []string
		}
		must(json.Unmarshal(scanner.Bytes(), &one))
		grow(one.Size)
		grow(one.Second)
		switch {
		case one.Root != nil:
			root, err := tlog.TreeHash(one.Size, reader)
			must(err)
			if one.Size > 0 && hex.EncodeToString(root[:]) != *one.Root {
				log.Fatalln("another root of", one.Size)
			}
		case one.Index != nil:
			root, err := tlog.TreeHash(one.Size, reader)
			must(err)
			leaf := tlog.RecordHash([]byte(strconv.FormatInt(*one.Index, 10)))
			must(tlog.CheckRecord(unhex(one.Path), one.Size, root, *one.Index, leaf), scanner.Text())
		case one.First > 0:
			old, err := tlog.TreeHash(one.First, reader)
			must(err)
			root, err := tlog.TreeHash(one.Second, reader)
			must(err)
			must(tlog.CheckTree(unhex(one.Path), one.Second, root, one.First, old), scanner.Text())
		default:
			continue
		}
		judged++
	}
	must(scanner.Err())
	fmt.Printf("sumdb: %d of merkle/proofs.ndjson\n", judged)
}

func read(folder, name string) []byte {
	data, err := os.ReadFile(filepath.Join(folder, name))
	must(err)
	return data
}

func hash(text string) (found tlog.Hash) {
	raw, err := base64.StdEncoding.DecodeString(text)
	must(err)
	if copy(found[:], raw) != len(raw) || len(raw) != len(found) {
		log.Fatalln("not a hash:", text)
	}
	return found
}

func hashes(texts []string) []tlog.Hash {
	var found []tlog.Hash
	for _, text := range texts {
		found = append(found, hash(text))
	}
	return found
}

func unhex(texts []string) []tlog.Hash {
	var found []tlog.Hash
	for _, text := range texts {
		raw, err := hex.DecodeString(text)
		must(err)
		found = append(found, hash(base64.StdEncoding.EncodeToString(raw)))
	}
	return found
}
