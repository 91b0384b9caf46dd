package visibility

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Resource is served to GET by name, or to POST with a body.
type Resource struct {
	Group, Version, Name, Kind string
	Namespaced                 bool
	// Subresource, as in clusterqueues/NAME/pendingworkloads; empty for none.
	Subresource string
	// Verb is get or create.
	Verb   string
	Handle func(ctx context.Context, q *Request) (any, error)
}

// Request that may be answered.
type Request struct {
	User            User
	Namespace, Name string
	Query           map[string][]string
	Body            []byte
	// Authorize asks whether the user may also do something else.
	Authorize func(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error)
}

// Server of resources.
type Server struct {
	resources     []Resource
	authenticator *requestHeaderAuthenticator
	client        client.Client
}

// New makes a server of resources. The reader must not cache: it reads one ConfigMap, rarely.
func New(reader client.Reader, c client.Client, resources ...Resource) *Server {
	return &Server{resources: resources, authenticator: &requestHeaderAuthenticator{reader: reader}, client: c}
}

// Paths to register the server at.
func (s *Server) Paths() []string {
	paths := map[string]bool{}
	for i := range s.resources {
		paths[s.resources[i].base()] = true
	}
	var out []string
	for path := range paths {
		out = append(out, path, path+"/")
	}
	return out
}

func (r *Resource) base() string { return "/apis/" + r.Group + "/" + r.Version }

// mostBytes bounds what is read of a body.
const mostBytes = 3 << 20

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := s.answer(r)
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		code := status.Status()
		code.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		if code.Details != nil && code.Details.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(code.Details.RetryAfterSeconds))
		}
		write(w, int(code.Code), code)
		return
	}
	code := http.StatusOK
	if r.Method == http.MethodPost {
		code = http.StatusCreated
	}
	write(w, code, answer)
}

func write(w http.ResponseWriter, code int, answer any) {
	data, err := json.Marshal(answer)
	if err != nil {
		code, data = http.StatusInternalServerError, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data)
}

func (s *Server) answer(r *http.Request) (any, error) {
	user, err := s.authenticator.authenticate(r)
	if err != nil {
		return nil, apierrors.NewUnauthorized(err.Error())
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	for i := range s.resources {
		resource := &s.resources[i]
		rest, ok := strings.CutPrefix(path, resource.base())
		if !ok {
			continue
		}
		if rest == "" {
			return s.list(resource), nil
		}
		request, ok := resource.match(r.Method, strings.Split(strings.Trim(rest, "/"), "/"))
		if !ok {
			continue
		}
		request.User, request.Query = user, r.URL.Query()
		return s.serve(r, resource, request)
	}
	return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, schema.GroupResource{}, path, "there is no such resource", 0, true)
}

// match a path below the group's version: namespaces/NS/RESOURCE/NAME/SUBRESOURCE.
func (r *Resource) match(method string, parts []string) (*Request, bool) {
	q := &Request{}
	if r.Namespaced {
		if len(parts) < 3 || parts[0] != "namespaces" {
			return nil, false
		}
		q.Namespace, parts = parts[1], parts[2:]
	}
	if parts[0] != r.Name {
		return nil, false
	}
	want := 1
	if r.Verb == "get" {
		want = 2
	}
	if r.Subresource != "" {
		want++
	}
	methods := map[string]string{"get": http.MethodGet, "create": http.MethodPost}
	if len(parts) != want || methods[r.Verb] != method || r.Subresource != "" && parts[want-1] != r.Subresource {
		return nil, false
	}
	if want > 1 {
		q.Name = parts[1]
	}
	return q, true
}

func (s *Server) serve(r *http.Request, resource *Resource, q *Request) (any, error) {
	q.Authorize = func(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
		return s.may(ctx, q.User, what)
	}
	allowed, err := q.Authorize(r.Context(), authorizationv1.ResourceAttributes{
		Group: resource.Group, Version: resource.Version, Resource: resource.Name, Subresource: resource.Subresource,
		Verb: resource.Verb, Namespace: q.Namespace, Name: q.Name,
	})
	if err != nil {
		return nil, err
	}
	if !allowed {
		where := schema.GroupResource{Group: resource.Group, Resource: resource.Name}
		return nil, apierrors.NewForbidden(where, q.Name, fmt.Errorf("user %q may not %s it in namespace %q", q.User.Name, resource.Verb, q.Namespace))
	}
	if resource.Verb == "create" {
		if q.Body, err = io.ReadAll(io.LimitReader(r.Body, mostBytes)); err != nil {
			return nil, err
		}
	}
	return resource.Handle(r.Context(), q)
}

// may asks the API server whether a user may do something.
func (s *Server) may(ctx context.Context, user User, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Name, UID: user.UID, Groups: user.Groups, ResourceAttributes: &what, Extra: map[string]authorizationv1.ExtraValue{},
	}}
	for key, values := range user.Extra {
		review.Spec.Extra[key] = values
	}
	err := s.client.Create(ctx, review)
	return review.Status.Allowed, err
}

// list is what discovery shows of a group's version.
func (s *Server) list(like *Resource) *metav1.APIResourceList {
	out := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: like.Group + "/" + like.Version}
	for i := range s.resources {
		r := &s.resources[i]
		if r.Group != like.Group || r.Version != like.Version {
			continue
		}
		name := r.Name
		if r.Subresource != "" {
			name += "/" + r.Subresource
		}
		out.APIResources = append(out.APIResources, metav1.APIResource{Name: name, Namespaced: r.Namespaced, Kind: r.Kind, Verbs: metav1.Verbs{r.Verb}})
	}
	return out
}
