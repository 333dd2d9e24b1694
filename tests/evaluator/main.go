// Judges and changes requests by admission policies with the API server's own code, and says what that cost.
//
// Reads a question a line from standard input, in JSON, and answers each with a line:
//
//	{"by": NAME, "policies": [...]}  compiles policies, and answers with what does not compile
//	{"request": {...}}               answers with the objects as the API server has them, or why it refuses them
//	{"by": NAME, "request": {...}}   judges them by those policies
//	{"by": NAME, "mutations": [...]} compiles MutatingAdmissionPolicies likewise
//	{"by": NAME, "request": {...}, "mutate": true}  answers with the object as they leave it, and with what failed
//	{"by": NAME, "request": {...}, "repeat": N}  judges it N times, and answers with what one took
//	{"accounts": [[NAMESPACE, NAME], ...], "rights": {...}}  answers which of them may use the right of trust
//
// A request is an AdmissionRequest. A namespace comes with its labels. Policies with a paramKind read the ConfigMap `params`,
// and refuse without it, as by parameterNotFoundAction: Deny. Rights are Roles, ClusterRoles and their bindings, by which
// Kubernetes' own authorizer decides; an account without a name stands for all of its namespace.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	goruntime "runtime"
	"syscall"

	admissionv1 "k8s.io/api/admission/v1"
	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	admissionvalidation "k8s.io/kubernetes/pkg/apis/admissionregistration/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	"k8s.io/kubernetes/pkg/capabilities"
	rbacvalidation "k8s.io/kubernetes/pkg/registry/rbac/validation"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac"
)

type question struct {
	Policies  []v1.ValidatingAdmissionPolicy `json:"policies"`
	Mutations []v1.MutatingAdmissionPolicy   `json:"mutations"`
	Mutate    bool                           `json:"mutate"`
	Repeat    int                            `json:"repeat"`
	Params    *corev1.ConfigMap              `json:"params"`
	By        string                         `json:"by"`
	Request   *admissionv1.AdmissionRequest  `json:"request"`
	Namespace map[string]string              `json:"namespace"`
	Rights    rights                         `json:"rights"`
	Accounts  [][2]string                    `json:"accounts"`
}

type rights struct {
	Roles               []*rbacv1.Role               `json:"Role"`
	RoleBindings        []*rbacv1.RoleBinding        `json:"RoleBinding"`
	ClusterRoles        []*rbacv1.ClusterRole        `json:"ClusterRole"`
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding `json:"ClusterRoleBinding"`
}

// authorizer makes Kubernetes' own authorizer of some rights.
func (r rights) authorizer() authorizer.UnconditionalAuthorizer {
	_, roles := rbacvalidation.NewTestRuleResolver(r.Roles, r.RoleBindings, r.ClusterRoles, r.ClusterRoleBindings)
	return rbac.New(roles, roles, roles, roles)
}

// settled is a request's objects with their defaults, or the reason for which no admission plugin sees them.
type settled struct {
	Object    runtime.Object `json:"object,omitempty"`
	OldObject runtime.Object `json:"oldObject,omitempty"`
	Refused   string         `json:"refused,omitempty"`
}

// verdict has what denied the request, and what failed: both refuse it. Costs are in units of the evaluator.
type verdict struct {
	Refused   string   `json:"refused,omitempty"`
	Asked     []string `json:"asked"`
	Denied    []string `json:"denied"`
	Errors    []string `json:"errors"`
	Cost      int64    `json:"cost"`
	Condition int64    `json:"condition"`
}

// mutated is an object as policies leave it.
type mutated struct {
	Object  runtime.Object `json:"object,omitempty"`
	Errors  []string       `json:"errors"`
	Patched []string       `json:"patched"`
	Cost    int64          `json:"cost"`
}

type mutator struct {
	policy   v1.MutatingAdmissionPolicy
	matcher  matchconditions.Matcher
	compiler *cel.CompositedCompiler
	patches  []cel.MutatingEvaluator
}

type compiled struct {
	policy      v1.ValidatingAdmissionPolicy
	matcher     matchconditions.Matcher
	conditions  cel.ConditionEvaluator
	validations cel.ConditionEvaluator
	validator   validating.Validator
}

func main() {
	capabilities.Setup(true, 0) // --allow-privileged, without which the API server refuses such pods by itself
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	policies, mutators := map[string][]compiled{}, map[string][]mutator{}
	for {
		var asked question
		if err := in.Decode(&asked); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		var answer any
		switch {
		case asked.Accounts != nil:
			answer = held(asked)
		case asked.Request == nil:
			failed := []string{}
			for _, each := range asked.Policies {
				made, errors := compile(each)
				policies[asked.By], failed = append(policies[asked.By], made), append(failed, errors...)
			}
			for _, each := range asked.Mutations {
				made, errors := compileMutator(each)
				mutators[asked.By], failed = append(mutators[asked.By], made), append(failed, errors...)
			}
			answer = failed
		default:
			object, old, err := objects(asked.Request)
			if asked.By == "" {
				found := settled{Object: object, OldObject: old}
				if err != nil {
					found = settled{Refused: err.Error()}
				}
				answer = found
			} else if err != nil {
				answer = verdict{Refused: err.Error(), Asked: []string{}, Denied: []string{}, Errors: []string{}}
			} else if asked.Mutate {
				answer = mutate(asked, object, mutators[asked.By])
			} else if asked.Repeat > 0 {
				answer = timed(asked, object, old, policies[asked.By])
			} else {
				answer = judge(asked, object, old, policies[asked.By])
			}
		}
		if err := out.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
}

// held says of each account whether it may be trusted, as a SubjectAccessReview does.
func held(asked question) []bool {
	found, authorizes := []bool{}, asked.Rights.authorizer()
	for _, each := range asked.Accounts {
		who := &user.DefaultInfo{Groups: serviceaccount.MakeGroupNames(each[0])}
		if each[1] != "" {
			who.Name = serviceaccount.MakeUsername(each[0], each[1])
		}
		decision, _, _ := authorizes.Authorize(context.Background(), authorizer.AttributesRecord{
			User: who, Verb: "use", Namespace: each[0], APIGroup: "slicewarden.dev", APIVersion: "*",
			Resource: "trustlevels", Name: "trusted", ResourceRequest: true,
		})
		found = append(found, decision == authorizer.DecisionAllow)
	}
	return found
}

// compile does what compilePolicy in plugin/policy/validating/plugin.go does, and keeps the parts, whose costs are wanted.
func compile(policy v1.ValidatingAdmissionPolicy) (compiled, []string) {
	declared := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	worded := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		log.Fatal(err)
	}
	errors := valid(policy)
	for _, each := range policy.Spec.Variables {
		named := &validating.Variable{Name: each.Name, Expression: each.Expression}
		if found := compiler.CompileAndStoreVariable(named, declared, environment.NewExpressions); found.Error != nil {
			errors = append(errors, fmt.Sprintf("%s: variable %s: %v", policy.Name, each.Name, found.Error))
		}
	}
	var conditions, validations, messages, notes []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, each := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{
			Expression: each.Expression, Message: each.Message, Reason: each.Reason,
		})
		var message cel.ExpressionAccessor
		if each.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: each.MessageExpression}
		}
		messages = append(messages, message)
	}
	for _, each := range policy.Spec.AuditAnnotations {
		notes = append(notes, &validating.AuditAnnotationCondition{Key: each.Key, ValueExpression: each.ValueExpression})
	}
	made := compiled{policy: policy}
	made.conditions = compiler.CompileCondition(conditions, declared, environment.NewExpressions)
	made.validations = compiler.CompileCondition(validations, declared, environment.NewExpressions)
	made.matcher = matchconditions.NewMatcher(made.conditions, policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	said := compiler.CompileCondition(messages, worded, environment.NewExpressions)
	noted := compiler.CompileCondition(notes, worded, environment.NewExpressions)
	for _, each := range []cel.ConditionEvaluator{made.conditions, made.validations, said, noted} {
		for _, err := range each.CompilationErrors() {
			errors = append(errors, fmt.Sprintf("%s: %v", policy.Name, err))
		}
	}
	made.validator = validating.NewValidator(made.validations, made.matcher, noted, said, policy.Spec.FailurePolicy, nil)
	return made, errors
}

// compileMutator does what compilePolicy in plugin/policy/mutating/compilation.go does.
func compileMutator(policy v1.MutatingAdmissionPolicy) (mutator, []string) {
	declared := cel.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		log.Fatal(err)
	}
	var errors []string
	defaulted, inner := policy.DeepCopy(), admissionregistration.MutatingAdmissionPolicy{}
	legacyscheme.Scheme.Default(defaulted)
	if err := legacyscheme.Scheme.Convert(defaulted, &inner, nil); err != nil {
		return mutator{}, []string{err.Error()}
	}
	for _, each := range admissionvalidation.ValidateMutatingAdmissionPolicy(&inner) {
		errors = append(errors, fmt.Sprintf("%s: %v", policy.Name, each))
	}
	for _, each := range policy.Spec.Variables {
		named := &validating.Variable{Name: each.Name, Expression: each.Expression}
		if found := compiler.CompileAndStoreVariable(named, declared, environment.NewExpressions); found.Error != nil {
			errors = append(errors, fmt.Sprintf("%s: variable %s: %v", policy.Name, each.Name, found.Error))
		}
	}
	var conditions []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, declared, environment.NewExpressions), policy.Spec.FailurePolicy, "policy", "validate", policy.Name)
	made := mutator{policy: policy, matcher: matcher, compiler: compiler}
	patching := declared
	patching.HasPatchTypes = true
	for _, each := range policy.Spec.Mutations {
		compiled := compiler.CompileMutatingEvaluator(&patch.JSONPatchCondition{Expression: each.JSONPatch.Expression}, patching, environment.NewExpressions)
		for _, err := range compiled.CompilationErrors() {
			errors = append(errors, fmt.Sprintf("%s: %v", policy.Name, err))
		}
		made.patches = append(made.patches, compiled)
	}
	return made, errors
}

// mutate does what dispatchInvocations and dispatchOne in plugin/policy/mutating/dispatcher.go do, once.
func mutate(asked question, object runtime.Object, policies []mutator) mutated {
	attributes, namespace, resource := requested(asked, object, nil)
	found := mutated{Object: object, Errors: []string{}, Patched: []string{}}
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: attributes.GetKind()}
	versioned.VersionedObject.Set(object)
	interfaces := admission.NewObjectInterfacesFromScheme(legacyscheme.Scheme)
	authorizes := asked.Rights.authorizer()
	for _, each := range policies {
		if !matches(each.policy.Spec.MatchConstraints.ResourceRules, attributes) {
			continue
		}
		given := params(asked, each.policy.Spec.ParamKind)
		bindings := cel.OptionalVariableBindings{VersionedParams: given, Authorizer: authorizes}
		if each.policy.Spec.ParamKind != nil && given == nil {
			found.Errors = append(found.Errors, each.policy.Name+": no params found")
			continue
		}
		ctx := each.compiler.CreateContext(context.Background())
		match := each.matcher.Match(ctx, versioned, nil, nil)
		if match.Error != nil {
			found.Errors = append(found.Errors, match.Error.Error())
		}
		if match.Error != nil || !match.Matches {
			continue
		}
		found.Patched = append(found.Patched, each.policy.Name)
		for _, evaluator := range each.patches {
			made := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(attributes.GetKind()))
			_, left, err := evaluator.ForInput(each.compiler.CreateContext(context.Background()), versioned, made, bindings, namespace, celconfig.RuntimeCELCostBudget)
			if err == nil {
				found.Cost = max(found.Cost, celconfig.RuntimeCELCostBudget-left)
			}
			changed, err := patch.NewJSONPatcher(evaluator).Patch(ctx, patch.Request{
				MatchedResource: resource, VersionedAttributes: versioned, ObjectInterfaces: interfaces, Namespace: namespace,
				OptionalVariables: bindings,
			}, celconfig.RuntimeCELCostBudget)
			if err != nil {
				found.Errors = append(found.Errors, err.Error())
				continue
			}
			interfaces.GetObjectDefaulter().Default(changed)
			versioned.UpdateObject(changed)
		}
	}
	found.Object = versioned.VersionedObject.Object()
	return found
}

// valid says why the API server would not store a policy.
func valid(policy v1.ValidatingAdmissionPolicy) []string {
	var errors []string
	defaulted, inner := policy.DeepCopy(), admissionregistration.ValidatingAdmissionPolicy{}
	legacyscheme.Scheme.Default(defaulted)
	if err := legacyscheme.Scheme.Convert(defaulted, &inner, nil); err != nil {
		return []string{err.Error()}
	}
	for _, each := range admissionvalidation.ValidateValidatingAdmissionPolicy(&inner) {
		errors = append(errors, fmt.Sprintf("%s: %v", policy.Name, each))
	}
	return errors
}

// objects decodes, defaults and validates as far as the API server does so before admission.
func objects(request *admissionv1.AdmissionRequest) (runtime.Object, runtime.Object, error) {
	object, inner, err := decode(request.Object)
	if err != nil {
		return nil, nil, err
	}
	old, before, err := decode(request.OldObject)
	if err != nil {
		return nil, nil, err
	}
	pod, ok := inner.(*core.Pod)
	if !ok {
		return object, old, nil
	}
	var faults field.ErrorList
	if was, ok := before.(*core.Pod); ok {
		options := podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, &was.Spec, &pod.ObjectMeta, &was.ObjectMeta)
		switch request.SubResource {
		case "":
			faults = validation.ValidatePodUpdate(pod, was, options)
		case "ephemeralcontainers":
			faults = validation.ValidatePodEphemeralContainersUpdate(pod, was, options)
		case "status":
			faults = validation.ValidatePodStatusUpdate(pod, was, options)
		case "resize":
			faults = validation.ValidatePodResize(pod, was, options)
		default:
			return nil, nil, fmt.Errorf("pods have no subresource %q that is updated", request.SubResource)
		}
	} else {
		options := podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, nil, &pod.ObjectMeta, nil)
		faults = validation.ValidatePodCreate(pod, options)
	}
	return object, old, faults.ToAggregate()
}

// decode returns an object in its own version, and as the API server has it inside; kinds of others as they are.
func decode(raw runtime.RawExtension) (runtime.Object, runtime.Object, error) {
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil, nil, nil
	}
	object, kind, err := legacyscheme.Codecs.UniversalDeserializer().Decode(raw.Raw, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		var other unstructured.Unstructured
		return &other, nil, other.UnmarshalJSON(raw.Raw)
	} else if err != nil {
		return nil, nil, err
	}
	legacyscheme.Scheme.Default(object)
	inner, err := legacyscheme.Scheme.ConvertToVersion(object, schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, nil, err
	}
	if kind.Group == "resource.k8s.io" { // matchPolicy: Equivalent
		kind.Version = "v1"
	}
	if object, err = legacyscheme.Scheme.ConvertToVersion(inner, kind.GroupVersion()); err != nil {
		return nil, nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	return object, inner, nil
}

// requested returns what the API server knows of a request beside its objects.
func requested(asked question, object, old runtime.Object) (admission.Attributes, *corev1.Namespace, schema.GroupVersionResource) {
	request := asked.Request
	some := object
	if some == nil {
		some = old
	}
	kind := some.GetObjectKind().GroupVersionKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: request.Resource.Resource}
	who := &user.DefaultInfo{Name: request.UserInfo.Username, Groups: request.UserInfo.Groups}
	attributes := admission.NewAttributesRecord(object, old, kind, request.Namespace, request.Name, resource,
		request.SubResource, admission.Operation(request.Operation), nil, false, who)
	var namespace *corev1.Namespace
	if request.Namespace != "" && kind.Kind != "Namespace" {
		namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: request.Namespace, Labels: asked.Namespace}}
	}
	return attributes, namespace, resource
}

func judge(asked question, object, old runtime.Object, policies []compiled) verdict {
	found := verdict{Asked: []string{}, Denied: []string{}, Errors: []string{}}
	attributes, namespace, resource := requested(asked, object, old)
	kind := attributes.GetKind()
	authorizes := asked.Rights.authorizer()
	for _, each := range policies {
		if !matches(each.policy.Spec.MatchConstraints.ResourceRules, attributes) {
			continue
		}
		given := params(asked, each.policy.Spec.ParamKind)
		bindings := cel.OptionalVariableBindings{VersionedParams: given, Authorizer: authorizes}
		if each.policy.Spec.ParamKind != nil && given == nil {
			found.Errors = append(found.Errors, each.policy.Name+": no params found")
			continue
		}
		versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind}
		versioned.VersionedObject.Set(object)
		versioned.VersionedOldObject.Set(old)
		made := cel.CreateAdmissionRequest(attributes, metav1.GroupVersionResource(resource), metav1.GroupVersionKind(kind))
		_, left, err := each.conditions.ForInput(context.Background(), versioned, made, cel.OptionalVariableBindings{}, nil, celconfig.RuntimeCELCostBudgetMatchConditions)
		if err == nil {
			found.Condition = max(found.Condition, celconfig.RuntimeCELCostBudgetMatchConditions-left)
		}
		if match := each.matcher.Match(context.Background(), versioned, nil, nil); match.Error == nil && !match.Matches {
			continue
		}
		found.Asked = append(found.Asked, each.policy.Name)
		_, left, err = each.validations.ForInput(context.Background(), versioned, made, bindings, namespace, celconfig.RuntimeCELCostBudget)
		if err == nil {
			found.Cost = max(found.Cost, celconfig.RuntimeCELCostBudget-left)
		}
		result := each.validator.Validate(context.Background(), resource, versioned, given, namespace, celconfig.RuntimeCELCostBudget, bindings.Authorizer)
		for _, decision := range result.Decisions {
			if decision.Evaluation == validating.EvalError {
				found.Errors = append(found.Errors, decision.Message)
			} else if decision.Action == validating.ActionDeny {
				found.Denied = append(found.Denied, decision.Message)
			}
		}
		for _, note := range result.AuditAnnotations {
			if note.Action == validating.AuditAnnotationActionError {
				found.Errors = append(found.Errors, note.Error)
			}
		}
	}
	return found
}

// spent is what a request takes: nanoseconds of the processor with what collects garbage, and allocations.
type spent struct {
	Nanoseconds int64  `json:"nanoseconds"`
	Allocations uint64 `json:"allocations"`
}

// timed judges a request many times as the dispatcher does, and returns the mean of what one took.
func timed(asked question, object, old runtime.Object, policies []compiled) spent {
	attributes, namespace, resource := requested(asked, object, old)
	var before, after syscall.Rusage
	var first, last goruntime.MemStats
	goruntime.ReadMemStats(&first)
	syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	authorizes := asked.Rights.authorizer()
	for range asked.Repeat {
		versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedKind: attributes.GetKind()}
		versioned.VersionedObject.Set(object)
		versioned.VersionedOldObject.Set(old)
		for _, each := range policies {
			if matches(each.policy.Spec.MatchConstraints.ResourceRules, attributes) {
				each.validator.Validate(context.Background(), resource, versioned, params(asked, each.policy.Spec.ParamKind), namespace, celconfig.RuntimeCELCostBudget, authorizes)
			}
		}
	}
	syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	goruntime.ReadMemStats(&last)
	took := syscall.TimevalToNsec(after.Utime) + syscall.TimevalToNsec(after.Stime) - syscall.TimevalToNsec(before.Utime) - syscall.TimevalToNsec(before.Stime)
	return spent{Nanoseconds: took / int64(asked.Repeat), Allocations: (last.Mallocs - first.Mallocs) / uint64(asked.Repeat)}
}

// params returns what a policy with a paramKind reads, as its informer has it.
func params(asked question, kind *v1.ParamKind) runtime.Object {
	if kind == nil || asked.Params == nil {
		return nil
	}
	return asked.Params
}

func matches(asked []v1.NamedRuleWithOperations, attributes admission.Attributes) bool {
	for _, each := range asked {
		if matcher := (rules.Matcher{Rule: each.RuleWithOperations, Attr: attributes}); matcher.Matches() {
			return true
		}
	}
	return false
}
