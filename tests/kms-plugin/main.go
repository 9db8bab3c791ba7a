// A KMS v2 plugin served by Kubernetes' own library, for tests: keys are files in a directory, the one whose name sorts last
// encrypts. Usage: kms-plugin SOCKET DIRECTORY
package main

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/kms/pkg/service"
)

type plugin struct{ directory string }

func (p plugin) newest() (string, error) {
	entries, err := os.ReadDir(p.directory)
	if err != nil || len(entries) == 0 {
		return "", fmt.Errorf("no keys: %v", err)
	}
	return entries[len(entries)-1].Name(), nil
}

func (p plugin) open(key string) (cipher.AEAD, error) {
	text, err := os.ReadFile(filepath.Join(p.directory, filepath.Base(key)))
	if err != nil {
		return nil, err
	}
	secret := sha256.Sum256(text)
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func (p plugin) Status(context.Context) (*service.StatusResponse, error) {
	key, err := p.newest()
	if err != nil {
		return nil, err
	}
	return &service.StatusResponse{Version: "v2", Healthz: "ok", KeyID: key}, nil
}

func (p plugin) Encrypt(_ context.Context, uid string, data []byte) (*service.EncryptResponse, error) {
	key, err := p.newest()
	if err != nil {
		return nil, err
	}
	aead, err := p.open(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	annotations := map[string][]byte{"nonce.kms.example.com": nonce}
	return &service.EncryptResponse{Ciphertext: aead.Seal(nil, nonce, data, nil), KeyID: key, Annotations: annotations}, nil
}

func (p plugin) Decrypt(_ context.Context, uid string, req *service.DecryptRequest) ([]byte, error) {
	aead, err := p.open(req.KeyID)
	if err != nil {
		return nil, err
	}
	return aead.Open(nil, req.Annotations["nonce.kms.example.com"], req.Ciphertext, nil)
}

func main() {
	server := service.NewGRPCService(os.Args[1], 5*time.Second, plugin{os.Args[2]})
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
	os.Exit(1)
}
