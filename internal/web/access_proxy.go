package web

import (
	"crypto/x509"
	"net/http"
	"slices"
	"strings"
)

// Proxy authenticates people and says in headers who they are. It proves itself by a client certificate: anyone can send headers.
type Proxy struct {
	// Roots sign the proxy's certificate, and Names are the common names that it may have.
	Roots *x509.CertPool
	Names []string
	// UserHeaders and GroupHeaders are looked at in turn; a group header may come several times.
	UserHeaders, GroupHeaders []string
	// GroupSeparator is between the groups of one header; empty: it has one group.
	GroupSeparator string
}

// sent says that a request comes from the proxy.
func (p *Proxy) sent(r *http.Request) bool {
	if p == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	shown := r.TLS.PeerCertificates
	between := x509.NewCertPool()
	for _, certificate := range shown[1:] {
		between.AddCert(certificate)
	}
	_, err := shown[0].Verify(x509.VerifyOptions{Roots: p.Roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil && slices.Contains(p.Names, shown[0].Subject.CommonName)
}

// reserved begins the names of Kubernetes' own users and groups. Someone who can choose a name at the proxy, or a group of a
// directory, must not become one of them: system:masters may do anything.
const reserved = "system:"

// names are whom the proxy speaks for.
func (p *Proxy) names(r *http.Request) (user string, groups []string, err error) {
	for _, header := range p.UserHeaders {
		values := r.Header.Values(header)
		if len(values) > 1 {
			return "", nil, &stranger{text: "the proxy names several users: it must replace the header " + header + " that it was sent"}
		}
		if user == "" && len(values) == 1 {
			user = strings.TrimSpace(values[0])
		}
	}
	if user == "" {
		return "", nil, &stranger{text: "the proxy does not say who you are"}
	}
	for _, header := range p.GroupHeaders {
		for _, value := range r.Header.Values(header) {
			several := []string{value}
			if p.GroupSeparator != "" {
				several = strings.Split(value, p.GroupSeparator)
			}
			for _, group := range several {
				if group = strings.TrimSpace(group); group != "" && group != "system:authenticated" { // which the API server adds
					groups = append(groups, group)
				}
			}
		}
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	for _, name := range append([]string{user}, groups...) {
		if strings.HasPrefix(name, reserved) {
			return "", nil, &stranger{text: "the proxy names " + name + ": names that begin with " + reserved + " are Kubernetes' own"}
		}
	}
	return user, groups, nil
}
