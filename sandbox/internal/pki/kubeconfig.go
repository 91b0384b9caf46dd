package pki

import (
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a self-contained kubeconfig (mode 0600) for the holder
// of a certificate. It appears whole or not at all: readers may be waiting for it.
func WriteKubeconfig(path, server string, ca string, user Pair) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: ca}
	config.AuthInfos["sandbox"] = &clientcmdapi.AuthInfo{ClientCertificate: user.Cert, ClientKey: user.Key}
	config.Contexts["sandbox"] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: "sandbox", Namespace: "default"}
	config.CurrentContext = "sandbox"
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return err
	}
	part := path + ".part"
	if err := os.Remove(part); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := clientcmd.WriteToFile(*config, part); err != nil {
		return err
	}
	return os.Rename(part, path)
}
