// Package report prints the results of a client's cases as JSON lines, one per case, and counts them.
package report

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// Line is what a test reads.
type Line struct {
	Case   string `json:"case"`
	OK     bool   `json:"ok"`
	Detail any    `json:"detail,omitempty"`
}

// Reporter writes to stdout and remembers whether anything failed.
type Reporter struct{ failed int }

// Add prints one line. detail is an error or anything that marshals.
func (r *Reporter) Add(name string, ok bool, detail any) {
	if !ok {
		r.failed++
	}
	if err, isError := detail.(error); isError {
		detail = err.Error()
	}
	text, err := json.Marshal(Line{Case: name, OK: ok, Detail: detail})
	if err != nil {
		text = fmt.Appendf(nil, `{"case":%q,"ok":false,"detail":"unprintable: %v"}`, name, err)
	}
	fmt.Println(string(text))
}

// Exit ends the program: 0 when every line was ok.
func (r *Reporter) Exit() {
	if r.failed > 0 {
		os.Exit(1)
	}
	os.Exit(0)
}

// Selected says whether name was asked for: an empty list asks for all, an entry that ends in * for
// a prefix.
func Selected(name, list string) bool {
	if list == "" {
		return true
	}
	for _, wanted := range strings.Split(list, ",") {
		if wanted == name {
			return true
		}
		if prefix, isPrefix := strings.CutSuffix(wanted, "*"); isPrefix && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
