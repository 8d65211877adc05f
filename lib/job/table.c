#include "job/table.h"

#include <float.h>
#include <string.h>

#include "base/mem.h"
#include "job/job.h"

/* The manifest, row by row: see table.h for what the columns mean. */

#define NOW false
#define LATER true
#define VALUE(name, text, built) {text, built},
#define VALUES(list, LIST) static const struct kml_job_value list[] = {LIST(VALUE)}

VALUES(models, KML_JOB_MODELS);
VALUES(activations, KML_JOB_ACTIVATIONS);
VALUES(formats, KML_JOB_FORMATS);
VALUES(standardizes, KML_JOB_STANDARDIZES);
VALUES(shuffles, KML_JOB_SHUFFLES);
VALUES(optimizers, KML_JOB_OPTIMIZERS);
VALUES(schedules, KML_JOB_SCHEDULES);
VALUES(nonfinites, KML_JOB_NONFINITES);
VALUES(metrics, KML_JOB_METRICS);
VALUES(resumes, KML_JOB_RESUMES);
VALUES(syncs, KML_JOB_SYNCS);
VALUES(payloads, KML_JOB_PAYLOADS);
VALUES(strategies, KML_JOB_STRATEGIES);
VALUES(forms, KML_JOB_FORMS);
VALUES(dampings, KML_JOB_DAMPINGS);
VALUES(codings, KML_JOB_CODINGS);
VALUES(outputs, KML_JOB_OUTPUTS);
VALUES(cleans, KML_JOB_CLEANS);
VALUES(managers, KML_JOB_MANAGERS);
VALUES(scopes, KML_JOB_SCOPES);
VALUES(restarts, KML_JOB_RESTARTS);
VALUES(transports, KML_JOB_TRANSPORTS);

/* Columns. A row names its path, kind, target and description, then what is special about it. */
#define ROW(path_, kind_, text, ...)                                                                         \
    {                                                                                                        \
        .path = path_, .kind = KML_JOB_KIND_##kind_, .description = text, __VA_ARGS__                        \
    }
#define TO(member) .offset = offsetof(struct kml_job, member)
#define ONE_OF(list) .values = list, .value_count = KML_COUNT(list)
#define DEFAULT(text) .fallback = text
#define RANGE(low, high) .min = (low), .max = (high)
#define ABOVE(low, high) .min = (low), .max = (high), .above_min = true
#define BETWEEN(low, high) .min = (low), .max = (high), .above_min = true, .below_max = true
#define WHEN(path_, mask) .when = path_, .when_mask = (mask)
#define IS(name) (1U << KML_JOB_##name)
#define REQUIRED .required = true
#define UNBUILT .later = true
#define CLUSTER_ONLY .cluster = true
#define BUILT_IN_MODEL                                                                                       \
    WHEN("spec.model.kind",                                                                                  \
         IS(MODEL_LINEAR) | IS(MODEL_LOGISTIC) | IS(MODEL_SOFTMAX) | IS(MODEL_MLP) | IS(MODEL_CNN))
#define WEIGHTED WHEN("spec.balancing.strategy", IS(STRATEGY_WLBS) | IS(STRATEGY_AUTOWLBS))
#define ADAMS WHEN("spec.training.optimizer.kind", IS(OPTIMIZER_ADAM) | IS(OPTIMIZER_ADAMW))
#define READABLE (KML_JOB_SCHEME_FILE | KML_JOB_SCHEME_PVC | KML_JOB_SCHEME_HTTP | KML_JOB_SCHEME_S3)
#define WRITABLE (KML_JOB_SCHEME_FILE | KML_JOB_SCHEME_PVC | KML_JOB_SCHEME_CONFIGMAP | KML_JOB_SCHEME_S3)
#define MILLION 1000000.0
#define BILLION 1000000000.0

static const struct kml_job_field rows[] = {
    ROW("apiVersion", FIXED, "The version of the KunalJob API.", REQUIRED, DEFAULT("kunal.ml/v1alpha1")),
    ROW("kind", FIXED, "The kind of the object.", REQUIRED, DEFAULT("KunalJob")),

    ROW("metadata", MAP, "The object's identity.", REQUIRED),
    ROW("metadata.name", NAME, "The job's name, a DNS label.", TO(name), REQUIRED, .max = KML_JOB_NAME_MAX),
    ROW("metadata.namespace", NAME, "The namespace of the object.", TO(namespace), .max = 63),
    ROW("metadata.uid", TEXT, "The identity that the API server gave to the object.", TO(uid)),
    ROW("metadata.labels", JSON_MAP, "Labels, each a text.", TO(labels)),
    ROW("metadata.annotations", IGNORED, "Annotations, which do not change the training.", .required = false),
    ROW("metadata.creationTimestamp", IGNORED, "Written by the API server.", .required = false),
    ROW("metadata.deletionTimestamp", IGNORED, "Written by the API server.", .required = false),
    ROW("metadata.deletionGracePeriodSeconds", IGNORED, "Written by the API server.", .required = false),
    ROW("metadata.finalizers", IGNORED, "Kept by the API server.", .required = false),
    ROW("metadata.generateName", IGNORED, "The API server made the name from it.", .required = false),
    ROW("metadata.generation", IGNORED, "Written by the API server.", .required = false),
    ROW("metadata.managedFields", IGNORED, "Written by the API server.", .required = false),
    ROW("metadata.ownerReferences", IGNORED, "Objects that own this one.", .required = false),
    ROW("metadata.resourceVersion", IGNORED, "Written by the API server.", .required = false),
    ROW("metadata.selfLink", IGNORED, "Written by old API servers.", .required = false),

    ROW("spec", MAP, "What is to be trained, on what, and how.", REQUIRED),

    ROW("spec.model", MAP, "The model; its input and output sizes come from the data.", REQUIRED),
    ROW("spec.model.kind", ENUM, "The family of the model; Custom is the user's own worker program.",
        TO(model.kind), ONE_OF(models), REQUIRED),
    ROW("spec.model.hiddenLayers", WIDTHS, "Widths of the hidden layers, input side first.", TO(model.hidden),
        REQUIRED, RANGE(1, 65536), WHEN("spec.model.kind", IS(MODEL_MLP))),
    ROW("spec.model.activation", ENUM, "The function after each hidden layer.", TO(model.activation),
        ONE_OF(activations), DEFAULT("ReLU"), WHEN("spec.model.kind", IS(MODEL_MLP) | IS(MODEL_CNN))),
    ROW("spec.model.layers", JSON_LIST, "Convolution, pooling and dense layers; the output layer is implied.",
        TO(model.layers), UNBUILT, WHEN("spec.model.kind", IS(MODEL_CNN))),
    ROW("spec.model.initialModelUri", URI, "A safetensors file to start from; its shapes must agree.",
        TO(model.initial_uri), .schemes = READABLE, BUILT_IN_MODEL),
    ROW("spec.model.seed", U32, "The seed from which everything random derives.", TO(model.seed),
        DEFAULT("1"), RANGE(0, UINT32_MAX)),

    ROW("spec.dataset", MAP, "The data; required unless the model is Custom.", .required = false),
    ROW("spec.dataset.storageUri", URI, "The folder of the data.", TO(dataset.uri), .schemes = READABLE),
    ROW("spec.dataset.format", ENUM, "The file format; Auto looks at names and magic numbers.",
        TO(dataset.format), ONE_OF(formats), DEFAULT("Auto")),
    ROW("spec.dataset.train", FILE, "The training file under storageUri.", TO(dataset.train),
        DEFAULT("Auto")),
    ROW("spec.dataset.validation", FILE,
        "The validation file, or a fraction of train that is cut off by seed.", TO(dataset.validation),
        DEFAULT("Auto"), .fraction = true),
    ROW("spec.dataset.test", FILE, "The test file under storageUri.", TO(dataset.test), DEFAULT("Auto")),
    ROW("spec.dataset.standardize", ENUM, "How features are scaled, computed once on train.",
        TO(dataset.standardize), ONE_OF(standardizes), DEFAULT("Auto")),
    ROW("spec.dataset.shuffle", ENUM, "The order of the samples in an epoch.", TO(dataset.shuffle),
        ONE_OF(shuffles), DEFAULT("Global")),

    ROW("spec.training", MAP, "How the parameters are fitted.", .required = false),
    ROW("spec.training.epochs", U32, "How often every sample is used.", TO(training.epochs), DEFAULT("1"),
        RANGE(1, MILLION)),
    ROW("spec.training.batchSize", U32, "Samples of one worker's step, in the mean over the workers.",
        TO(training.batch_size), DEFAULT("64"), RANGE(1, MILLION)),
    ROW("spec.training.optimizer", MAP, "The update rule.", .required = false),
    ROW("spec.training.optimizer.kind", ENUM, "The family of the update rule.", TO(training.optimizer.kind),
        ONE_OF(optimizers), DEFAULT("SGD")),
    ROW("spec.training.optimizer.learningRate", REAL, "The step size.", TO(training.optimizer.learning_rate),
        DEFAULT("0.1"), ABOVE(0, 1000)),
    ROW("spec.training.optimizer.momentum", REAL, "The share of the last step that is kept.",
        TO(training.optimizer.momentum), DEFAULT("0.9"), .min = 0, .max = 1, .below_max = true,
        WHEN("spec.training.optimizer.kind", IS(OPTIMIZER_MOMENTUM) | IS(OPTIMIZER_NESTEROV))),
    ROW("spec.training.optimizer.beta1", REAL, "Decay of the mean of the gradients.",
        TO(training.optimizer.beta1), DEFAULT("0.9"), .min = 0, .max = 1, .below_max = true, ADAMS),
    ROW("spec.training.optimizer.beta2", REAL, "Decay of the mean of the squared gradients.",
        TO(training.optimizer.beta2), DEFAULT("0.999"), .min = 0, .max = 1, .below_max = true, ADAMS),
    ROW("spec.training.optimizer.epsilon", REAL, "Keeps the division by the root of squares finite.",
        TO(training.optimizer.epsilon), DEFAULT("1e-8"), ABOVE(0, 1),
        WHEN("spec.training.optimizer.kind",
             IS(OPTIMIZER_ADAGRAD) | IS(OPTIMIZER_ADAM) | IS(OPTIMIZER_ADAMW))),
    ROW("spec.training.optimizer.weightDecay", REAL,
        "The pull of every weight towards zero; AdamW's is decoupled.", TO(training.optimizer.weight_decay),
        DEFAULT("0"), RANGE(0, 1)),
    ROW("spec.training.learningRateSchedule", MAP, "How the step size changes.", .required = false),
    ROW("spec.training.learningRateSchedule.kind", ENUM, "The form of the change.",
        TO(training.schedule.kind), ONE_OF(schedules), DEFAULT("Constant")),
    ROW("spec.training.learningRateSchedule.warmupEpochs", REAL,
        "Epochs in which the rate grows linearly from zero.", TO(training.schedule.warmup_epochs),
        DEFAULT("0"), RANGE(0, MILLION)),
    ROW("spec.training.learningRateSchedule.stepEpochs", U32, "Epochs between two cuts of the rate.",
        TO(training.schedule.step_epochs), REQUIRED, RANGE(1, MILLION),
        WHEN("spec.training.learningRateSchedule.kind", IS(SCHEDULE_STEP))),
    ROW("spec.training.learningRateSchedule.factor", REAL, "What the rate is multiplied by at a cut.",
        TO(training.schedule.factor), DEFAULT("0.1"), ABOVE(0, 1),
        WHEN("spec.training.learningRateSchedule.kind", IS(SCHEDULE_STEP))),
    ROW("spec.training.gradientClipNorm", REAL, "The largest global norm of a gradient; absent: off.",
        TO(training.clip_norm), ABOVE(0, BILLION)),
    ROW("spec.training.nonFiniteGradient", ENUM, "What happens to a gradient with NaN or Inf in it.",
        TO(training.nonfinite), ONE_OF(nonfinites), DEFAULT("Refuse")),
    ROW("spec.training.target", OPTION, "A goal at which training stops early.", TO(training.target.on)),
    ROW("spec.training.target.metric", ENUM, "The number that is watched.", TO(training.target.metric),
        ONE_OF(metrics), REQUIRED),
    ROW("spec.training.target.value", REAL, "The value that is to be reached.", TO(training.target.value),
        REQUIRED, RANGE(0, BILLION)),
    ROW("spec.training.target.patienceEpochs", U32, "Stop after so many epochs without progress; 0: never.",
        TO(training.target.patience_epochs), DEFAULT("0"), RANGE(0, MILLION)),
    ROW("spec.training.evaluation", MAP, "When the model is evaluated, and on what.", .required = false),
    ROW("spec.training.evaluation.everyEpochs", U32,
        "Epochs between two evaluations; the last is always evaluated.", TO(training.evaluation.every_epochs),
        DEFAULT("1"), RANGE(1, MILLION)),
    ROW("spec.training.evaluation.onTest", BOOL,
        "Whether the test set is evaluated, when there is one; else the validation set is.",
        TO(training.evaluation.on_test), DEFAULT("true")),
    ROW("spec.training.checkpoint", OPTION, "Copies of the state from which a job goes on.",
        TO(training.checkpoint.on), UNBUILT),
    ROW("spec.training.checkpoint.storageUri", URI, "The folder of the checkpoints.",
        TO(training.checkpoint.uri), REQUIRED,
        .schemes = KML_JOB_SCHEME_FILE | KML_JOB_SCHEME_PVC | KML_JOB_SCHEME_S3),
    ROW("spec.training.checkpoint.everySeconds", U32, "Seconds between two checkpoints.",
        TO(training.checkpoint.every_seconds), RANGE(1, BILLION)),
    ROW("spec.training.checkpoint.everyEpochs", U32, "Epochs between two checkpoints.",
        TO(training.checkpoint.every_epochs), RANGE(1, MILLION)),
    ROW("spec.training.checkpoint.keep", U32, "How many checkpoints are kept.", TO(training.checkpoint.keep),
        DEFAULT("3"), RANGE(1, 1000)),
    ROW("spec.training.checkpoint.resume", ENUM, "Whether a job starts from a checkpoint that is there.",
        TO(training.checkpoint.resume), ONE_OF(resumes), DEFAULT("Auto")),

    ROW("spec.synchronization", MAP, "Who waits for whom.", .required = false),
    ROW("spec.synchronization.mode", ENUM, "The barrier of the workers.", TO(sync.mode), ONE_OF(syncs),
        DEFAULT("LSP")),
    ROW("spec.synchronization.limit", U32_AUTO, "How many workers' steps open the barrier of LSP.",
        TO(sync.limit), DEFAULT("auto"), RANGE(1, MILLION), WHEN("spec.synchronization.mode", IS(SYNC_LSP))),
    ROW("spec.synchronization.staleness", U32, "How many steps a worker of SSP may be ahead of the slowest.",
        TO(sync.staleness), DEFAULT("3"), RANGE(0, MILLION), WHEN("spec.synchronization.mode", IS(SYNC_SSP))),
    ROW("spec.synchronization.graceWindow", REAL, "How long LSP waits for one more, in mean step times.",
        TO(sync.grace_window), DEFAULT("0"), RANGE(0, 1), WHEN("spec.synchronization.mode", IS(SYNC_LSP))),
    ROW("spec.synchronization.payload", ENUM, "What a worker pushes.", TO(sync.payload), ONE_OF(payloads),
        DEFAULT("Gradient")),
    ROW("spec.synchronization.delayCompensation", OPTION, "Correction of stale gradients (DC-ASGD).",
        TO(sync.compensation.on), UNBUILT),
    ROW("spec.synchronization.delayCompensation.lambda", REAL, "The strength of the correction.",
        TO(sync.compensation.lambda), REQUIRED, RANGE(0, BILLION)),

    ROW("spec.balancing", MAP, "How much data each worker gets.", .required = false),
    ROW("spec.balancing.strategy", ENUM, "The rule by which data is dealt.", TO(balancing.strategy),
        ONE_OF(strategies), DEFAULT("Leased")),
    ROW("spec.balancing.form", ENUM, "Whether shares change the batch or the shard.", TO(balancing.form),
        ONE_OF(forms), DEFAULT("Batch"), WEIGHTED),
    ROW("spec.balancing.warmupSteps", U32, "Steps that are measured before the initial division.",
        TO(balancing.warmup_steps), DEFAULT("10"), RANGE(1, MILLION), WEIGHTED),
    ROW("spec.balancing.everySteps", U32, "Steps between two adjustments.", TO(balancing.every_steps),
        DEFAULT("20"), RANGE(1, MILLION), WEIGHTED),
    ROW("spec.balancing.minimumShare", REAL, "The smallest share of a worker, at most 1/m.",
        TO(balancing.minimum_share), DEFAULT("0.02"), RANGE(0, 1), WEIGHTED),
    ROW("spec.balancing.maximumChange", REAL, "The largest relative change of a share in one adjustment.",
        TO(balancing.maximum_change), DEFAULT("0.5"), ABOVE(0, 1), WEIGHTED),
    ROW("spec.balancing.coolDown", U32, "Adjustments between two rapid ones.", TO(balancing.cool_down),
        DEFAULT("2"), RANGE(0, MILLION), WEIGHTED),
    ROW("spec.balancing.fineThreshold", REAL, "The imbalance of step times from which shares are adjusted.",
        TO(balancing.fine_threshold), DEFAULT("0.05"), RANGE(0, 100), WEIGHTED),
    ROW("spec.balancing.rapidThreshold", REAL,
        "The imbalance of step times from which a change may be rapid.", TO(balancing.rapid_threshold),
        DEFAULT("0.3"), RANGE(0, 100), WEIGHTED),
    ROW("spec.balancing.dryRun", BOOL, "Decide and record, but do not act.", TO(balancing.dry_run),
        DEFAULT("false"), WEIGHTED),

    ROW("spec.grouping", MAP, "Groups of workers of like speed, each with a barrier of its own.",
        WHEN("spec.synchronization.mode", IS(SYNC_HYBRID))),
    ROW("spec.grouping.ratio", REAL, "Slowest over fastest inside a group.", TO(grouping.ratio),
        DEFAULT("1.3"), ABOVE(1, 1000)),
    ROW("spec.grouping.minMembers", U32, "The smallest size of a group.", TO(grouping.min_members),
        DEFAULT("1"), RANGE(1, 10000)),
    ROW("spec.grouping.maxGroups", U32, "The largest number of groups.", TO(grouping.max_groups),
        DEFAULT("4"), RANGE(1, 10000)),
    ROW("spec.grouping.stalenessBound", U32_AUTO,
        "The staleness of a step in flight at which other groups wait.", TO(grouping.staleness_bound),
        DEFAULT("auto"), RANGE(1, MILLION)),
    ROW("spec.grouping.stalenessDamping", ENUM, "How a stale group's step is scaled.", TO(grouping.damping),
        ONE_OF(dampings), DEFAULT("Inverse")),
    ROW("spec.grouping.hysteresis", REAL, "The gain that a regrouping must promise.", TO(grouping.hysteresis),
        DEFAULT("0.08"), RANGE(0, 1)),
    ROW("spec.grouping.dwellWindows", U32, "Windows for which the gain must last.",
        TO(grouping.dwell_windows), DEFAULT("3"), RANGE(0, MILLION)),
    ROW("spec.grouping.coolDownWindows", U32, "Windows between two regroupings.",
        TO(grouping.cool_down_windows), DEFAULT("15"), RANGE(0, MILLION)),
    ROW("spec.grouping.coding", MAP, "Gradient coding inside a group.", .required = false),
    ROW("spec.grouping.coding.scheme", ENUM, "The gradient code of a group.", TO(grouping.scheme),
        ONE_OF(codings), DEFAULT("Auto")),
    ROW("spec.grouping.coding.stragglers", U32_AUTO, "How many members of a group a step can do without.",
        TO(grouping.stragglers), DEFAULT("auto"), RANGE(0, 4),
        WHEN("spec.grouping.coding.scheme",
             IS(CODING_AUTO) | IS(CODING_TRIGONOMETRIC) | IS(CODING_FRACTIONAL))),

    ROW("spec.output", MAP, "Where the finished model goes.", .required = false),
    ROW("spec.output.storageUri", URI, "The folder or object of the model; absent: the driver's own place.",
        TO(output.uri), .schemes = WRITABLE),
    ROW("spec.output.formats", OUTPUTS, "File formats of the model.", TO(output.formats), ONE_OF(outputs),
        DEFAULT("Safetensors")),

    ROW("spec.runPolicy", MAP, "The life of the job and its pods.", .required = false),
    ROW("spec.runPolicy.cleanPodPolicy", ENUM, "Which pods are deleted at the end.", TO(run_policy.clean),
        ONE_OF(cleans), DEFAULT("Running"), CLUSTER_ONLY),
    ROW("spec.runPolicy.backoffLimit", U32, "Failures that are retried before the job fails.",
        TO(run_policy.backoff_limit), DEFAULT("3"), RANGE(0, INT32_MAX)),
    ROW("spec.runPolicy.activeDeadlineSeconds", U64, "Seconds from the start after which the job fails.",
        TO(run_policy.active_deadline_seconds), RANGE(1, 9007199254740992.0)),
    ROW("spec.runPolicy.preRunningDeadlineSeconds", U64, "Seconds within which all replicas must run.",
        TO(run_policy.pre_running_deadline_seconds), RANGE(1, 9007199254740992.0)),
    ROW("spec.runPolicy.ttlSecondsAfterFinished", U64, "Seconds after the end at which the job is deleted.",
        TO(run_policy.ttl_seconds), RANGE(0, INT32_MAX), .unset = -1, CLUSTER_ONLY),
    ROW("spec.runPolicy.suspend", BOOL, "Whether the job waits without pods.", TO(run_policy.suspend),
        DEFAULT("false"), CLUSTER_ONLY),
    ROW("spec.runPolicy.managedBy", ENUM, "The controller that acts on this job.", TO(run_policy.managed_by),
        ONE_OF(managers), DEFAULT("kunal.ml/kunal-operator"), CLUSTER_ONLY),
    ROW("spec.runPolicy.schedulingPolicy", OPTION, "How the pods are scheduled together.",
        TO(run_policy.scheduling.on), CLUSTER_ONLY),
    ROW("spec.runPolicy.schedulingPolicy.minAvailable", U32, "Pods that must start together; absent: all.",
        TO(run_policy.scheduling.min_available), RANGE(1, INT32_MAX)),
    ROW("spec.runPolicy.schedulingPolicy.queue", TEXT, "The queue of the gang scheduler.",
        TO(run_policy.scheduling.queue)),
    ROW("spec.runPolicy.schedulingPolicy.minResources", JSON_MAP, "Resources that the gang needs at least.",
        TO(run_policy.scheduling.min_resources)),
    ROW("spec.runPolicy.schedulingPolicy.priorityClass", TEXT, "The priority class of the gang.",
        TO(run_policy.scheduling.priority_class)),
    ROW("spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds", U32, "Seconds for which the gang may wait.",
        TO(run_policy.scheduling.timeout_seconds), RANGE(1, INT32_MAX)),

    ROW("spec.elasticPolicy", OPTION, "Bounds of the number of workers when it changes by itself.",
        TO(elastic.on), UNBUILT),
    ROW("spec.elasticPolicy.minReplicas", U32, "The fewest workers.", TO(elastic.min_replicas),
        RANGE(1, 10000)),
    ROW("spec.elasticPolicy.maxReplicas", U32, "The most workers.", TO(elastic.max_replicas),
        RANGE(1, 10000)),

    ROW("spec.restartScope", ENUM, "What is started again when a pod fails.", TO(restart_scope),
        ONE_OF(scopes), DEFAULT("Pod")),

    ROW("spec.replicaSpecs", MAP, "The processes of the job.", .required = false),
    ROW("spec.replicaSpecs.PS", MAP, "The parameter servers; PS-0 also holds the conductor.",
        .required = false),
    ROW("spec.replicaSpecs.PS.replicas", U32, "How many parameter servers share the parameters.",
        TO(ps.replicas), DEFAULT("1"), RANGE(1, 256)),
    ROW("spec.replicaSpecs.PS.restartPolicy", ENUM, "When a parameter server that ended is started again.",
        TO(ps.restart_policy), ONE_OF(restarts), DEFAULT("Always")),
    ROW("spec.replicaSpecs.PS.template", TEMPLATE, "The pod of a parameter server.", TO(ps.template)),
    ROW("spec.replicaSpecs.Worker", MAP, "The workers.", .required = false),
    ROW("spec.replicaSpecs.Worker.replicas", U32, "How many workers train.", TO(worker.replicas),
        DEFAULT("1"), RANGE(1, 10000)),
    ROW("spec.replicaSpecs.Worker.restartPolicy", ENUM, "When a worker that ended is started again.",
        TO(worker.restart_policy), ONE_OF(restarts), DEFAULT("OnFailure")),
    ROW("spec.replicaSpecs.Worker.template", TEMPLATE, "The pod of a worker.", TO(worker.template)),

    ROW("spec.security", MAP, "How the processes trust one another.", .required = false),
    ROW("spec.security.transport", ENUM, "The transport between them; the default is the driver's.",
        TO(transport), ONE_OF(transports)),

    ROW("status", IGNORED, "Written by the operator.", .required = false),
};

const struct kml_job_field *kml_job_fields(uint32_t *count)
{
    *count = (uint32_t)KML_COUNT(rows);
    return rows;
}

const struct kml_job_field *kml_job_field_of(const char *path)
{
    for (size_t i = 0; i < KML_COUNT(rows); i++) {
        if (strcmp(rows[i].path, path) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

const char *kml_job_field_key(const struct kml_job_field *field)
{
    const char *dot = strrchr(field->path, '.');
    return dot == NULL ? field->path : dot + 1;
}
