// A small operator as people write them with controller-runtime, run unchanged against planes: every argument is the
// kubeconfig of one, and each gets a manager of its own, with caches, a leader election and an event recorder.
//
// A Greeting gets a ConfigMap with its text. When it goes, it leaves a ConfigMap named farewell-<name> behind.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "polder.test/farewell"

var groupVersion = schema.GroupVersion{Group: "polder.test", Version: "v1"}

type Greeting struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Text string `json:"text"`
	} `json:"spec"`
	Status struct {
		Greeted    string             `json:"greeted,omitempty"`
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitempty"`
}

type GreetingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Greeting `json:"items"`
}

func (in *Greeting) DeepCopyObject() runtime.Object     { return copied(in, &Greeting{}) }
func (in *GreetingList) DeepCopyObject() runtime.Object { return copied(in, &GreetingList{}) }

func copied[T any](from, to *T) *T {
	bytes, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(bytes, to)
	}
	if err != nil {
		panic(err)
	}
	return to
}

type reconciler struct {
	client.Client
	scheme *runtime.Scheme
	events record.EventRecorder
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var greeting Greeting
	if err := r.Get(ctx, request.NamespacedName, &greeting); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !greeting.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.leave(ctx, &greeting)
	}
	if controllerutil.AddFinalizer(&greeting, finalizer) {
		return ctrl.Result{}, r.Update(ctx, &greeting)
	}

	text := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: greeting.Namespace, Name: greeting.Name}}
	done, err := controllerutil.CreateOrUpdate(ctx, r.Client, &text, func() error {
		text.Data = map[string]string{"text": greeting.Spec.Text}
		return controllerutil.SetControllerReference(&greeting, &text, r.scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if done != controllerutil.OperationResultNone {
		r.events.Eventf(&greeting, corev1.EventTypeNormal, "Greeted", "the config map was %s", done)
	}

	before := client.MergeFrom(greeting.DeepCopyObject().(client.Object))
	greeting.Status.Greeted = greeting.Spec.Text
	ready := metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Greeted", ObservedGeneration: greeting.Generation,
	}
	meta.SetStatusCondition(&greeting.Status.Conditions, ready)
	return ctrl.Result{}, r.Status().Patch(ctx, &greeting, before)
}

func (r *reconciler) leave(ctx context.Context, greeting *Greeting) error {
	name := "farewell-" + greeting.Name
	farewell := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: greeting.Namespace, Name: name}}
	if err := r.Create(ctx, &farewell); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	controllerutil.RemoveFinalizer(greeting, finalizer)
	return r.Update(ctx, greeting)
}

// Starts a manager in the plane of a kubeconfig and waits for its end.
func run(ctx context.Context, kubeconfig string) error {
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	scheme.AddKnownTypes(groupVersion, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, groupVersion)

	// Two managers in one process have controllers of one name.
	oneName := true
	manager, err := ctrl.NewManager(rest, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       server.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "greetings",
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
		Controller:                    config.Controller{SkipNameValidation: &oneName},
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&Greeting{}).
		Owns(&corev1.ConfigMap{}).
		Complete(&reconciler{
			Client: manager.GetClient(),
			scheme: scheme,
			events: manager.GetEventRecorderFor("greetings"),
		})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

func main() {
	log.SetLogger(zap.New(zap.UseDevMode(true)))
	ctx := ctrl.SetupSignalHandler()
	kubeconfigs := os.Args[1:]
	ends := make(chan error, len(kubeconfigs))
	for _, kubeconfig := range kubeconfigs {
		go func() { ends <- run(ctx, kubeconfig) }()
	}
	for range kubeconfigs {
		if err := <-ends; err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
