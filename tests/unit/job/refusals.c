#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "common.h"

/* What is refused, where, and with which words. */

struct bad {
    const char *set;   /* overrides of the smallest manifest */
    const char *path;  /* the first problem's path */
    const char *piece; /* of its text */
};

#define CUSTOM                                                                                               \
    "spec.model={kind: Custom}|spec.replicaSpecs.Worker.template={spec: {containers: [{command: [x]}]}}|"
#define POD "spec.replicaSpecs.Worker.template="

static const struct bad invalid[] = {
    /* the frame */
    {"apiVersion=v1", "apiVersion", "write kunal.ml/v1alpha1"},
    {"apiVersion=", "apiVersion", "required, but missing; write apiVersion: kunal.ml/v1alpha1"},
    {"apiVersion=7", "apiVersion", "the number 7"},
    {"kind=Job", "kind", "write KunalJob"},
    {"kind=", "kind", "required, but missing"},
    {"metadata=", "metadata.name", "required, but missing"},
    {"metadata=x", "metadata", "the text 'x' stands here; write a map"},
    {"metadata.name=", "metadata.name", "required"},
    {"metadata.name=7", "metadata.name", "write a text"},
    {"metadata.name=Upper", "metadata.name", "no DNS label"},
    {"metadata.name=7up", "metadata.name", "a letter first"},
    {"metadata.name=end-", "metadata.name", "no DNS label"},
    {"metadata.name=a.b", "metadata.name", "no DNS label"},
    {"metadata.name=abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijk", "metadata.name", "at most 50"},
    {"metadata.namespace=no_way", "metadata.namespace", "at most 63"},
    {"metadata.labels=[a]", "metadata.labels", "write a map"},
    {"metadata.labels.a=1", "metadata.labels.a", "a label is a text"},
    {"metadata.labels.k\\.ml/x=true", "metadata.labels.k\\.ml/x", "a label is a text"},
    {"metadata.nam=x", "metadata.nam", "did you mean 'name'?"},
    {"spec=", "spec.model.kind", "required, but missing"},
    {"spec=[1]", "spec", "write a map"},
    {"specs.x=1", "specs", "did you mean 'spec'?"},
    {"spec.modle=1", "spec.modle", "did you mean 'model'?"},
    {"spec.colour=red", "spec.colour", "unknown field; remove it, or write one of model, dataset"},
    {"spec.replicaSpecs.ps.replicas=1", "spec.replicaSpecs.ps", "did you mean 'PS'?"},
    {"spec.replicaSpecs.worker.replicas=1", "spec.replicaSpecs.worker", "did you mean 'Worker'?"},
    {"spec.training.learningRate=1", "spec.training.learningRate", "unknown field"},
    /* model */
    {"spec.model=", "spec.model.kind", "required"},
    {"spec.model.kind=", "spec.model.kind", "required"},
    {"spec.model.kind=Perceptron", "spec.model.kind", "write one of Linear, Logistic, Softmax, MLP, Custom"},
    {"spec.model.kind=softmax", "spec.model.kind", "did you mean Softmax?"},
    {"spec.model.kind=3", "spec.model.kind", "the number 3 stands here; write one of"},
    {"spec.model.kind=MLP", "spec.model.hiddenLayers", "required with this spec.model.kind"},
    {"spec.model={kind: MLP, hiddenLayers: 128}", "spec.model.hiddenLayers", "a list of widths"},
    {"spec.model={kind: MLP, hiddenLayers: []}", "spec.model.hiddenLayers", "0 widths"},
    {"spec.model={kind: MLP, hiddenLayers: [1,2,3,4,5,6,7,8,9]}", "spec.model.hiddenLayers", "9 widths"},
    {"spec.model={kind: MLP, hiddenLayers: [128, 0]}", "spec.model.hiddenLayers[1]", "at least 1"},
    {"spec.model={kind: MLP, hiddenLayers: [-5]}", "spec.model.hiddenLayers[0]",
     "the number -5 is out of range"},
    {"spec.model={kind: MLP, hiddenLayers: [x]}", "spec.model.hiddenLayers[0]", "write an integer"},
    {"spec.model={kind: MLP, hiddenLayers: [70000]}", "spec.model.hiddenLayers[0]", "at most 65536"},
    {"spec.model.hiddenLayers=[0]", "spec.model.hiddenLayers[0]",
     "out of range"}, /* inactive, and still checked */
    {"spec.model.activation=relu", "spec.model.activation", "did you mean ReLU?"},
    {"spec.model.seed=-1", "spec.model.seed", "at least 0 and at most 4294967295"},
    {"spec.model.seed=4294967296", "spec.model.seed", "out of range"},
    {"spec.model.seed=1.5", "spec.model.seed", "write an integer"},
    {"spec.model.seed='1'", "spec.model.seed", "the text '1' stands here"},
    {"spec.model.initialModelUri=model.safetensors", "spec.model.initialModelUri", "no scheme"},
    {CUSTOM "spec.model.activation=ReLU", "spec.model.activation", "not allowed with spec.model.kind Custom"},
    {CUSTOM "spec.model.hiddenLayers=[1]", "spec.model.hiddenLayers",
     "not allowed with spec.model.kind Custom"},
    {"spec.model={kind: Custom}", "spec.replicaSpecs.Worker.template",
     "spec.model.kind Custom starts the command"},
    {"spec.model={kind: Custom}|" POD "{spec: {containers: [{args: [a]}]}}",
     "spec.replicaSpecs.Worker.template", "there is none"},
    /* dataset */
    {"spec.dataset=", "spec.dataset.storageUri", "required unless spec.model.kind is Custom"},
    {"spec.dataset.storageUri=/data", "spec.dataset.storageUri",
     "no scheme that is read here; write file:///folder"},
    {"spec.dataset.storageUri=file://data", "spec.dataset.storageUri", "three slashes"},
    {"spec.dataset.storageUri=file:/data", "spec.dataset.storageUri", "no scheme"},
    {"spec.dataset.storageUri=ftp://data", "spec.dataset.storageUri", "no scheme"},
    {"spec.dataset.storageUri=pvc://claim/data", "spec.dataset.storageUri", "needs a cluster"},
    {"spec.dataset.storageUri=configmap://x", "spec.dataset.storageUri", "no scheme"},
    {"spec.dataset.storageUri=12", "spec.dataset.storageUri", "the number 12"},
    {"spec.dataset.storageUri=\"file:///a\\nb\"", "spec.dataset.storageUri", "control character"},
    {"spec.dataset.format=csv", "spec.dataset.format", "did you mean CSV?"},
    {"spec.dataset.train=/etc/passwd", "spec.dataset.train", "no file below storageUri"},
    {"spec.dataset.train=../x.csv", "spec.dataset.train", "without '..'"},
    {"spec.dataset.train=a/..", "spec.dataset.train", "without '..'"},
    {"spec.dataset.train=''", "spec.dataset.train", "no file below"},
    {"spec.dataset.train=0.5", "spec.dataset.train", "write a file name"},
    {"spec.dataset.train=[a]", "spec.dataset.train", "a list stands here"},
    {"spec.dataset.train={fil: a}", "spec.dataset.train.fil", "did you mean 'file'?"},
    {"spec.dataset.train={file: a, q: 1}", "spec.dataset.train.q", "write file or labelColumn"},
    {"spec.dataset.train={file: 1}", "spec.dataset.train.file", "write a file name"},
    {"spec.dataset.train={file: a, labelColumn: -1}", "spec.dataset.train.labelColumn", "no column"},
    {"spec.dataset.train={file: a, labelColumn: 1.5}", "spec.dataset.train.labelColumn", "no column"},
    {"spec.dataset.train={file: a, labelColumn: ''}", "spec.dataset.train.labelColumn", "no column"},
    {"spec.dataset.validation=1", "spec.dataset.validation", "less than 1"},
    {"spec.dataset.validation=-0.1", "spec.dataset.validation", "more than 0"},
    {"spec.dataset.format=IDX|spec.dataset.test={file: a, labelColumn: 0}", "spec.dataset.test",
     "spec.dataset.format IDX"},
    {"spec.dataset.standardize=Mean", "spec.dataset.standardize",
     "write one of Auto, None, Scale255, MeanStd"},
    {"spec.dataset.shuffle=true", "spec.dataset.shuffle", "true stands here; write one of"},
    /* training */
    {"spec.training=fast", "spec.training", "write a map"},
    {"spec.training.epochs=0", "spec.training.epochs", "at least 1"},
    {"spec.training.epochs=-3", "spec.training.epochs", "the number -3 is out of range"},
    {"spec.training.epochs=ten", "spec.training.epochs", "the text 'ten' stands here; write an integer"},
    {"spec.training.epochs=true", "spec.training.epochs", "write an integer"},
    {"spec.training.epochs=1e3", "spec.training.epochs", "write an integer"},
    {"spec.training.epochs=99999999999", "spec.training.epochs", "at most 1000000"},
    {"spec.training.batchSize=-64", "spec.training.batchSize", "the number -64 is out of range"},
    {"spec.training.batchSize=0", "spec.training.batchSize", "at least 1"},
    {"spec.training.batchSize=64.0", "spec.training.batchSize", "write an integer"},
    {"spec.training.batchsize=64", "spec.training.batchsize", "did you mean 'batchSize'?"},
    {"spec.training.optimizer=SGD", "spec.training.optimizer", "write a map"},
    {"spec.training.optimizer.kind=Adamm", "spec.training.optimizer.kind", "did you mean Adam"},
    {"spec.training.optimizer.kind=RMSprop", "spec.training.optimizer.kind",
     "'RMSprop' is not known; write one of SGD, Momentum, Nesterov, Adagrad, Adam, AdamW"},
    {"spec.training.optimizer.learningRate=0", "spec.training.optimizer.learningRate", "more than 0"},
    {"spec.training.optimizer.learningRate=-0.1", "spec.training.optimizer.learningRate", "more than 0"},
    {"spec.training.optimizer.learningRate=big", "spec.training.optimizer.learningRate", "write a number"},
    {"spec.training.optimizer.learnRate=1", "spec.training.optimizer.learnRate", "unknown field"},
    {"spec.training.optimizer={kind: Momentum, momentum: 1}", "spec.training.optimizer.momentum",
     "less than 1"},
    {"spec.training.optimizer.momentum=-1", "spec.training.optimizer.momentum", "at least 0"},
    {"spec.training.optimizer={kind: Adam, beta1: 1.0}", "spec.training.optimizer.beta1", "less than 1"},
    {"spec.training.optimizer={kind: Adam, beta2: 2}", "spec.training.optimizer.beta2", "less than 1"},
    {"spec.training.optimizer={kind: Adam, epsilon: 0}", "spec.training.optimizer.epsilon", "more than 0"},
    {"spec.training.optimizer.weightDecay=-0.5", "spec.training.optimizer.weightDecay", "at least 0"},
    {"spec.training.learningRateSchedule.kind=Linear", "spec.training.learningRateSchedule.kind",
     "write one of Constant, Step, Cosine"},
    {"spec.training.learningRateSchedule.kind=Step", "spec.training.learningRateSchedule.stepEpochs",
     "required with"},
    {"spec.training.learningRateSchedule={kind: Step, stepEpochs: 0}",
     "spec.training.learningRateSchedule.stepEpochs", "at least 1"},
    {"spec.training.learningRateSchedule.factor=0", "spec.training.learningRateSchedule.factor",
     "more than 0"},
    {"spec.training.learningRateSchedule.warmupEpochs=-1", "spec.training.learningRateSchedule.warmupEpochs",
     "at least 0"},
    {"spec.training.epochs=3|spec.training.learningRateSchedule.warmupEpochs=5",
     "spec.training.learningRateSchedule.warmupEpochs", "more than spec.training.epochs, 3"},
    {"spec.training.gradientClipNorm=0", "spec.training.gradientClipNorm", "more than 0"},
    {"spec.training.nonFiniteGradient=Ignore", "spec.training.nonFiniteGradient",
     "write one of Refuse, Fail"},
    {"spec.training.target={value: 0.9}", "spec.training.target.metric", "required"},
    {"spec.training.target={metric: Accuracy}", "spec.training.target.value", "required"},
    {"spec.training.target={metric: Accuracy, value: 88}", "spec.training.target.value", "metric Accuracy"},
    {"spec.training.target={metric: Loss, value: -1}", "spec.training.target.value", "at least 0"},
    {"spec.model.kind=Linear|spec.training.target={metric: Accuracy, value: 0.9}",
     "spec.training.target.metric", "spec.model.kind Linear"},
    {"spec.training.evaluation.onTest=false|spec.training.target={metric: Loss, value: 1}",
     "spec.training.target", "spec.training.evaluation.onTest is false"},
    {"spec.training.target.patienceEpochs=-1|spec.training.target.metric=Loss|spec.training.target.value=1",
     "spec.training.target.patienceEpochs", "at least 0"},
    {"spec.training.evaluation.everyEpochs=0", "spec.training.evaluation.everyEpochs", "at least 1"},
    {"spec.training.evaluation.onTest=yes", "spec.training.evaluation.onTest", "write true or false"},
    /* synchronization, balancing, grouping */
    {"spec.synchronization.mode=lsp", "spec.synchronization.mode", "did you mean LSP?"},
    {"spec.synchronization.mode=Async", "spec.synchronization.mode", "write one of BSP, ASP, SSP, LSP"},
    {"spec.synchronization.limit=0", "spec.synchronization.limit", "at least 1 and at most 1000000, or auto"},
    {"spec.synchronization.limit=Auto", "spec.synchronization.limit", "write an integer or auto"},
    {"spec.synchronization={mode: SSP, staleness: -1}", "spec.synchronization.staleness", "at least 0"},
    {"spec.synchronization.graceWindow=1.5", "spec.synchronization.graceWindow", "at most 1"},
    {"spec.synchronization.payload=Weights", "spec.synchronization.payload", "write one of Gradient"},
    {"spec.balancing.strategy=Dynamic", "spec.balancing.strategy",
     "write one of Static, Leased, WLBS, AutoWLBS"},
    {"spec.balancing.form=Both", "spec.balancing.form", "write one of Batch"},
    {"spec.balancing={strategy: WLBS, minimumShare: 0.6}|spec.replicaSpecs.Worker.replicas=2",
     "spec.balancing.minimumShare", "is more than everything; write at most"},
    {"spec.balancing={strategy: AutoWLBS, fineThreshold: 0.4}", "spec.balancing.fineThreshold",
     "more than spec.balancing.rapidThreshold, 0.3; write less"},
    {"spec.balancing.minimumShare=2", "spec.balancing.minimumShare", "at most 1"},
    {"spec.balancing.maximumChange=0", "spec.balancing.maximumChange", "more than 0"},
    {"spec.balancing.warmupSteps=-1", "spec.balancing.warmupSteps", "at least 1"},
    {"spec.balancing.dryRun=1", "spec.balancing.dryRun", "write true or false"},
    {"spec.grouping=4", "spec.grouping", "write a map"},
    {"spec.grouping.ratio=1", "spec.grouping.ratio", "more than 1"},
    {"spec.grouping.coding.stragglers=5", "spec.grouping.coding.stragglers", "at most 4, or auto"},
    {"spec.grouping.coding.scheme=Cyclic", "spec.grouping.coding.scheme", "FractionalRepetition"},
    {"spec.grouping.groups=2", "spec.grouping.groups", "unknown field"},
    /* output and policies */
    {"spec.output.storageUri=models", "spec.output.storageUri", "no scheme"},
    {"spec.output.storageUri=configmap://m", "spec.output.storageUri", "needs a cluster"},
    {"spec.output.formats=Safetensors", "spec.output.formats", "write a list such as [Safetensors]"},
    {"spec.output.formats=[]", "spec.output.formats", "write a list such as"},
    {"spec.output.formats=[Safetensors, Safetensors]", "spec.output.formats[1]", "stands twice"},
    {"spec.output.formats=[pickle]", "spec.output.formats[0]", "not known"},
    {"spec.runPolicy.cleanPodPolicy=Never", "spec.runPolicy.cleanPodPolicy",
     "write one of All, Running, None"},
    {"spec.runPolicy.backoffLimit=-1", "spec.runPolicy.backoffLimit", "at least 0"},
    {"spec.runPolicy.activeDeadlineSeconds=0", "spec.runPolicy.activeDeadlineSeconds", "at least 1"},
    {"spec.runPolicy.ttlSecondsAfterFinished=-1", "spec.runPolicy.ttlSecondsAfterFinished", "at least 0"},
    {"spec.runPolicy.suspend=maybe", "spec.runPolicy.suspend", "write true or false"},
    {"spec.runPolicy.managedBy=me", "spec.runPolicy.managedBy", "kueue.x-k8s.io/multikueue"},
    {"spec.runPolicy.schedulingPolicy.minAvailable=3", "spec.runPolicy.schedulingPolicy.minAvailable",
     "spec.replicaSpecs.Worker.replicas"},
    {"spec.runPolicy.schedulingPolicy.queue=[a]", "spec.runPolicy.schedulingPolicy.queue", "write a text"},
    {"spec.restartScope=Node", "spec.restartScope", "write one of Pod"},
    {"spec.replicaSpecs.Worker.replicas=0", "spec.replicaSpecs.Worker.replicas",
     "the number 0 is out of range; write at least 1"},
    {"spec.replicaSpecs.Worker.replicas=-4", "spec.replicaSpecs.Worker.replicas", "out of range"},
    {"spec.replicaSpecs.Worker.replicas=four", "spec.replicaSpecs.Worker.replicas", "write an integer"},
    {"spec.replicaSpecs.PS.replicas=0", "spec.replicaSpecs.PS.replicas", "at least 1"},
    {"spec.replicaSpecs.PS.replicas=1000", "spec.replicaSpecs.PS.replicas", "at most 256"},
    {"spec.replicaSpecs.Worker.restartPolicy=Sometimes", "spec.replicaSpecs.Worker.restartPolicy",
     "write one of Always, OnFailure, Never, ExitCode"},
    {"spec.replicaSpecs.Chief.replicas=1", "spec.replicaSpecs.Chief", "write one of PS, Worker"},
    {"spec.security.transport=TLS", "spec.security.transport", "MTLS"},
    /* templates */
    {POD "x", "spec.replicaSpecs.Worker.template", "no pod template"},
    {POD "{}", "spec.replicaSpecs.Worker.template", "no container"},
    {POD "{spec: {containers: []}}", "spec.replicaSpecs.Worker.template", "no container"},
    {POD "{spec: []}", "spec.replicaSpecs.Worker.template.spec", "write a map"},
    {POD "{spec: {containers: {}}}", "spec.replicaSpecs.Worker.template.spec.containers", "write a list"},
    {POD "{spec: {containers: [x]}}", "spec.replicaSpecs.Worker.template.spec.containers[0]", "no container"},
    {POD "{spec: {containers: [{image: 1}]}}", "spec.replicaSpecs.Worker.template.spec.containers[0].image",
     "write a text"},
    {POD "{spec: {containers: [{command: run}]}}",
     "spec.replicaSpecs.Worker.template.spec.containers[0].command", "write a list"},
    {POD "{spec: {containers: [{args: [1]}]}}",
     "spec.replicaSpecs.Worker.template.spec.containers[0].args[0]", "put it in quotes"},
    {POD "{spec: {containers: [{env: [x]}]}}", "spec.replicaSpecs.Worker.template.spec.containers[0].env[0]",
     "this is no map"},
    {POD "{spec: {containers: [{env: [{value: x}]}]}}",
     "spec.replicaSpecs.Worker.template.spec.containers[0].env[0]", "no usable name"},
    {POD "{spec: {containers: [{env: [{name: A, value: 1}]}]}}",
     "spec.replicaSpecs.Worker.template.spec.containers[0].env[0].value", "write a text"},
    {POD "{spec: {containers: [{env: [{name: KUNAL_ROLE, value: ps}]}]}}",
     "spec.replicaSpecs.Worker.template.spec.containers[0].env[0].name", "belong to Kunal ML"},
};

static const struct bad unsupported[] = {
    {"spec.model.kind=CNN", "spec.model.kind", "CNN is not supported yet"},
    {"spec.model.layers=[{dense: {width: 3}}]", "spec.model.layers", "not supported yet"},
    {"spec.model.initialModelUri=https://x/y", "spec.model.initialModelUri", "not supported yet"},
    {"spec.dataset.storageUri=http://x/y", "spec.dataset.storageUri", "not supported yet"},
    {"spec.dataset.storageUri=https://x/y", "spec.dataset.storageUri", "not supported yet"},
    {"spec.dataset.storageUri=s3://x/y", "spec.dataset.storageUri", "not supported yet"},
    {"spec.dataset.format=LibSVM", "spec.dataset.format", "not supported yet"},
    {"spec.dataset.format=NPY", "spec.dataset.format", "not supported yet"},
    {"spec.training.checkpoint={}", "spec.training.checkpoint", "not supported yet"},
    {"spec.training.checkpoint.everySeconds=5", "spec.training.checkpoint", "not supported yet"},
    {"spec.synchronization.mode=Hybrid", "spec.synchronization.mode", "Hybrid is not supported yet"},
    {"spec.synchronization.mode=Hybrid|spec.grouping.ratio=2", "spec.synchronization.mode",
     "not supported yet"},
    {"spec.synchronization.payload=Model", "spec.synchronization.payload", "Model is not supported yet"},
    {"spec.synchronization.delayCompensation.lambda=1", "spec.synchronization.delayCompensation",
     "not supported yet"},
    {"spec.balancing={strategy: WLBS, form: Shard}", "spec.balancing.form", "Shard is not supported yet"},
    {"spec.balancing={strategy: AutoWLBS, form: Shard}", "spec.balancing.form", "write one of Batch"},
    {"spec.output.formats=[ONNX]", "spec.output.formats[0]", "ONNX is not supported yet"},
    {"spec.output.storageUri=s3://b/k", "spec.output.storageUri", "not supported yet"},
    {"spec.elasticPolicy={minReplicas: 1, maxReplicas: 4}", "spec.elasticPolicy", "not supported yet"},
    {"spec.restartScope=Job", "spec.restartScope", "Job is not supported yet"},
};

static void check(const struct bad *bad, enum kml_code code)
{
    struct loaded l;
    load(&l, bad->set, KML_JOB_LOCAL);
    if (l.result == 0) {
        fail_msg("accepted: %s", bad->set);
    }
    char want[KML_ERR_TEXT];
    snprintf(want, sizeof(want), "%s: ", bad->path);
    const char *at = strstr(l.err.text, want);
    bool starts =
        at != NULL && (at == l.err.text || (at - l.err.text >= 2 && at[-1] == ' ' && at[-2] == ':'));
    if (!starts || strstr(at, bad->piece) == NULL || l.err.code != code) {
        fail_msg("%s gave %s '%s', wanted '%s' and '%s'", bad->set, kml_code_name(l.err.code), l.err.text,
                 bad->path, bad->piece);
    }
    assert_true(l.notes.problems >= 1);
    assert_string_equal(l.notes.problem[0], l.err.text);
    unload(&l);
}

static void every_invalid_manifest_is_refused_at_its_path(void **state)
{
    (void)state;
    assert_true(KML_COUNT(invalid) >= 120);
    for (size_t i = 0; i < KML_COUNT(invalid); i++) {
        check(&invalid[i], KML_INVALID);
    }
}

static void what_is_not_built_yet_is_refused_as_unsupported(void **state)
{
    (void)state;
    for (size_t i = 0; i < KML_COUNT(unsupported); i++) {
        check(&unsupported[i], KML_UNSUPPORTED);
    }
}

static void assert_refused(const char *text, const char *want)
{
    struct loaded l;
    load_text(&l, text, "", KML_JOB_LOCAL);
    assert_int_equal(l.result, -1);
    if (strncmp(l.err.text, want, strlen(want)) != 0) {
        fail_msg("'%s', wanted '%s'", l.err.text, want);
    }
    unload(&l);
}

static void problems_name_line_and_column_in_yaml_and_json(void **state)
{
    (void)state;
    assert_refused("apiVersion: kunal.ml/v1alpha1\nkind: KunalJob\nmetadata:\n  name: x\nspec:\n  model:\n   "
                   " kind: MPL\n",
                   "t.yaml:7:11: spec.model.kind: 'MPL' is not known");
    assert_refused(
        "apiVersion: kunal.ml/v1alpha1\nkind: KunalJob\nmetadata: {name: x}\nspec:\n  modell: {}\n",
        "t.yaml:5:3: spec.modell: unknown field; did you mean 'model'?");
    assert_refused("{\"apiVersion\": \"kunal.ml/v1alpha1\",\n \"kind\": \"KunalJob\",\n \"metadata\": "
                   "{\"name\": \"x\"},\n"
                   " \"spec\": {\"model\": {\"kind\": \"Softmax\",\n   \"seed\": -1}}}",
                   "t.yaml:5:12: spec.model.seed: the number -1 is out of range");
    assert_refused(
        "{\"apiVersion\": \"kunal.ml/v1alpha1\", \"kind\": \"KunalJob\", \"metadata\": {\"name\": \"x\"},\n"
        " \"spec\": {\"model\": {\"kind\": \"Softmax\"},\n   \"datasat\": {}}}",
        "t.yaml:3:4: spec.datasat: unknown field");
    assert_refused(
        "apiVersion: kunal.ml/v1alpha1\nkind: KunalJob\nmetadata: {name: x}\nspec:\n  training:\n    epochs: "
        "1\n",
        "t.yaml:5:3: spec.model.kind: required, but missing"); /* the place of the map that lacks it */
    assert_refused("[1, 2]", "t.yaml:1:1: this is no KunalJob");
    assert_refused("just a text", "t.yaml:1:1: this is no KunalJob");
    assert_refused("", "t.yaml: the document is empty");
    assert_refused("a: [", "t.yaml:");
}

static void an_override_is_named_as_the_place_of_its_problem(void **state)
{
    (void)state;
    struct loaded l;
    load(&l, "spec.training.epochs=-3", KML_JOB_LOCAL);
    assert_string_equal(l.err.text,
                        "--set spec.training.epochs=-3: spec.training.epochs: the number -3 is out of range; "
                        "write at least 1 and at most 1000000");
    unload(&l);
}

static void all_problems_are_reported_in_one_go(void **state)
{
    (void)state;
    struct loaded l;
    load(&l,
         "spec.model.kind=X|spec.training.epochs=0|spec.training.bogus=1|spec.synchronization.mode=Hybrid|"
         "spec.replicaSpecs.Worker.replicas=0|spec.dataset.storageUri=nowhere",
         KML_JOB_LOCAL);
    assert_int_equal(l.notes.problems, 6);
    assert_int_equal(l.notes.problems_left_out, 0);
    assert_true(any_contains(l.notes.problem, 6, "spec.training.bogus: unknown field"));
    assert_true(any_contains(l.notes.problem, 6, "spec.replicaSpecs.Worker.replicas: the number 0"));
    unload(&l);
}

static void a_flood_of_problems_is_cut_and_counted(void **state)
{
    (void)state;
    struct loaded l;
    struct kml_buf text;
    kml_buf_init(&text, 1 << 16);
    assert_int_equal(kml_buf_puts(&text, SMALLEST, NULL), 0);
    for (int i = 0; i < 50; i++) {
        assert_int_equal(kml_buf_printf(&text, NULL, "  unknown%d: 1\n", i), 0);
    }
    load_text(&l, kml_buf_text(&text), "", KML_JOB_LOCAL);
    assert_int_equal(l.notes.problems, KML_JOB_MAX_PROBLEMS);
    assert_int_equal(l.notes.problems_left_out, 50 - KML_JOB_MAX_PROBLEMS);
    unload(&l);
    kml_buf_finish(&text);
}

static void a_file_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct kml_job job;
    struct kml_job_notes notes;
    struct kml_err err = {0};
    kml_job_init(&job);
    kml_job_notes_init(&notes);
    assert_int_equal(kml_job_load_file(&job, "/nowhere/job.yaml", NULL, 0, KML_JOB_LOCAL, &notes, &err), -1);
    assert_int_equal(err.code, KML_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/job.yaml"));
    assert_int_equal(notes.problems, 1);
    kml_job_notes_finish(&notes);
    kml_job_finish(&job);
}

static void hostile_names_end_up_in_one_printable_line(void **state)
{
    (void)state;
    struct loaded l;
    load(&l, "spec=\"\\e[31m\\nred\"", KML_JOB_LOCAL);
    assert_int_equal(l.result, -1);
    for (const char *c = l.err.text; *c != '\0'; c++) {
        assert_true((unsigned char)*c >= 0x20 && *c != 0x7f);
    }
    unload(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_invalid_manifest_is_refused_at_its_path),
        cmocka_unit_test(what_is_not_built_yet_is_refused_as_unsupported),
        cmocka_unit_test(problems_name_line_and_column_in_yaml_and_json),
        cmocka_unit_test(an_override_is_named_as_the_place_of_its_problem),
        cmocka_unit_test(all_problems_are_reported_in_one_go),
        cmocka_unit_test(a_flood_of_problems_is_cut_and_counted),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(hostile_names_end_up_in_one_printable_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
