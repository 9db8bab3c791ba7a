// An OpenID provider that people really run, dex, over HTTPS; and somebody who signs in there as a browser would.
//
// Arguments: certificate, key. Prints the issuer and the ID token of "ann" for client "polder", then serves until standard input
// ends.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"

	"github.com/dexidp/dex/server"
	"github.com/dexidp/dex/storage"
	"github.com/dexidp/dex/storage/memory"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"
)

const (
	back     = "https://client.example/callback"
	email    = "ann@example.com"
	password = "correct horse"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// What dex shows to people. Nobody looks here.
func pages() string {
	directory, err := os.MkdirTemp("", "dex-pages-")
	check(err)
	for _, name := range []string{"static", "templates", "themes/coreos"} {
		check(os.MkdirAll(filepath.Join(directory, name), 0o700))
	}
	for _, name := range []string{"approval", "login", "password", "oob", "error"} {
		file := filepath.Join(directory, "templates", name+".html")
		check(os.WriteFile(file, []byte(name), 0o600))
	}
	return directory
}

func provider(issuer, directory string) http.Handler {
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
	check(err)
	logger := logrus.New()
	all := memory.New(logger)
	all = storage.WithStaticClients(all, []storage.Client{{ID: "polder", Secret: "shared", Name: "Polder", RedirectURIs: []string{back}}})
	all = storage.WithStaticPasswords(all, []storage.Password{{Email: email, Hash: hash, Username: "ann", UserID: "7"}}, logger)
	all = storage.WithStaticConnectors(all, []storage.Connector{{ID: server.LocalConnector, Name: "Email", Type: server.LocalConnector}})
	handler, err := server.NewServer(context.Background(), server.Config{
		Issuer:             issuer,
		Storage:            all,
		SkipApprovalScreen: true,
		Web:                server.WebConfig{Dir: directory},
		Logger:             logger,
		PrometheusRegistry: prometheus.NewRegistry(),
	})
	check(err)
	return handler
}

// Goes where an answer leads to.
func follow(from *url.URL, answer *http.Response, err error) *url.URL {
	check(err)
	said, _ := io.ReadAll(answer.Body)
	to, err := answer.Location()
	if err != nil {
		log.Fatalf("%s: %s %s", from, answer.Status, said)
	}
	return from.ResolveReference(to)
}

func signIn(client *http.Client, issuer string) string {
	query := url.Values{"client_id": {"polder"}, "redirect_uri": {back}, "response_type": {"code"}, "scope": {"openid email profile"}}
	at, err := url.Parse(issuer + "/auth?" + query.Encode())
	check(err)
	answer, err := client.Get(at.String())
	at = follow(at, answer, err)
	answer, err = client.PostForm(at.String(), url.Values{"login": {email}, "password": {password}})
	at = follow(at, answer, err)
	for at.Query().Get("code") == "" {
		answer, err = client.Get(at.String())
		at = follow(at, answer, err)
	}
	answer, err = client.PostForm(issuer+"/token", url.Values{
		"grant_type": {"authorization_code"}, "code": {at.Query().Get("code")}, "redirect_uri": {back},
		"client_id": {"polder"}, "client_secret": {"shared"},
	})
	check(err)
	var tokens struct {
		IDToken string `json:"id_token"`
	}
	check(json.NewDecoder(answer.Body).Decode(&tokens))
	if tokens.IDToken == "" {
		log.Fatalf("no token: %s", answer.Status)
	}
	return tokens.IDToken
}

func main() {
	certificate, err := os.ReadFile(os.Args[1])
	check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	issuer := fmt.Sprintf("https://%s/dex", listener.Addr())
	directory := pages()
	defer os.RemoveAll(directory)
	go http.ServeTLS(listener, provider(issuer, directory), os.Args[1], os.Args[2])
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	client := &http.Client{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	check(json.NewEncoder(os.Stdout).Encode(map[string]string{"issuer": issuer, "token": signIn(client, issuer)}))
	io.Copy(io.Discard, os.Stdin)
}
