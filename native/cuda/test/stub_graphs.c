/*
 * Graphs of the tests' driver. They do what the kernels captured into them do. User objects end with the last graph or
 * instance that has them, on a thread of their own where STUB_DESTRUCTORS says thread. STUB_OBJECTS=off: there are none.
 */

struct node { struct graph *graph; int type; CUmemAllocNode alloc; };
struct user_object { void *of; void (*destroy)(void *); _Atomic int refs; };

static void *end_object(void *arg)
{
	struct user_object *o = arg;
	o->destroy(o->of);
	free(o);
	return NULL;
}

static void release(struct user_object *o, int count)
{
	const char *how = getenv("STUB_DESTRUCTORS");
	pthread_attr_t detached;
	pthread_t t;

	if (atomic_fetch_sub(&o->refs, count) > count)
		return;
	if (!how || strcmp(how, "thread")) {
		end_object(o);
		return;
	}
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&t, &detached, end_object, o))
		abort();
}

API CUresult cuUserObjectCreate(CUuserObject *object, void *of, void (*destroy)(void *), unsigned refs, unsigned flags)
{
	const char *can = getenv("STUB_OBJECTS");
	struct user_object *o = calloc(1, sizeof *o);

	if (flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC || (can && !strcmp(can, "off")))
		return CUDA_ERROR_NOT_SUPPORTED;
	*o = (struct user_object){of, destroy, (int)refs};
	*object = o;
	return CUDA_SUCCESS;
}
API CUresult cuUserObjectRelease(CUuserObject o, unsigned count) { release(o, (int)count); return CUDA_SUCCESS; }
API CUresult cuGraphRetainUserObject(CUgraph g, CUuserObject o, unsigned count, unsigned flags)
{
	struct graph *graph = g;

	if (!graph || count != 1 || graph->objects == 64)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		atomic_fetch_add(&((struct user_object *)o)->refs, 1);
	graph->object[graph->objects++] = o;
	return CUDA_SUCCESS;
}

static void stub_graph_free(struct graph *g)
{
	for (int i = 0; i < g->objects; i++)
		release(g->object[i], 1);
	free(g);
}

static struct graph *copy_of(const struct graph *g)
{
	struct graph *copy = malloc(sizeof *copy);

	*copy = *g;
	for (int i = 0; i < g->objects; i++)
		atomic_fetch_add(&g->object[i]->refs, 1);
	return copy;
}

API CUresult cuGraphCreate(CUgraph *g, unsigned flags) { (void)flags; *g = calloc(1, sizeof(struct graph)); return CUDA_SUCCESS; }
API CUresult cuGraphDestroy(CUgraph g) { stub_graph_free(g); return CUDA_SUCCESS; }
API CUresult cuGraphClone(CUgraph *clone, CUgraph g) { *clone = copy_of(g); return CUDA_SUCCESS; }
API CUresult cuGraphGetNodeCount(CUgraph g, size_t *n) { *n = (size_t)((struct graph *)g)->nodes; return CUDA_SUCCESS; }
API CUresult cuGraphInstantiateWithFlags(CUgraphExec *x, CUgraph g, unsigned long long flags) { (void)flags; *x = copy_of(g); return CUDA_SUCCESS; }
API CUresult cuGraphInstantiateWithParams(CUgraphExec *x, CUgraph g, void *p) { (void)p; return cuGraphInstantiateWithFlags(x, g, 0); }
API CUresult cuGraphInstantiate_v2(CUgraphExec *x, CUgraph g, CUgraphNode *n, char *l, size_t z) { (void)n, (void)l, (void)z; return cuGraphInstantiateWithFlags(x, g, 0); }
API CUresult cuGraphInstantiate(CUgraphExec *x, CUgraph g, CUgraphNode *n, char *l, size_t z) { (void)n, (void)l, (void)z; return cuGraphInstantiateWithFlags(x, g, 0); }
API CUresult cuGraphExecDestroy(CUgraphExec x) { stub_graph_free(x); return CUDA_SUCCESS; }
API CUresult cuGraphExecUpdate_v2(CUgraphExec x, CUgraph g, void *result)
{
	struct graph *exec = x, *from = copy_of(g), was = *exec;
	(void)result;
	*exec = *from;
	free(from);
	for (int i = 0; i < was.objects; i++)
		release(was.object[i], 1);
	return CUDA_SUCCESS;
}
API CUresult cuGraphExecUpdate(CUgraphExec x, CUgraph g, CUgraphNode *n, int *result) { (void)n; return cuGraphExecUpdate_v2(x, g, result); }
API CUresult cuGraphLaunch(CUgraphExec x, CUstream s)
{
	struct graph *g = x, *into = stub_capture(s);
	struct stub_kernel k = {g->ns, NULL};

	if (!stub_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	if (into) { /* a part of that graph */
		into->nodes++;
		into->ns += g->ns;
		for (int i = 0; i < g->works; i++)
			into->work[into->works++] = g->work[i];
		for (int i = 0; i < g->objects; i++) {
			atomic_fetch_add(&g->object[i]->refs, 1);
			into->object[into->objects++] = g->object[i];
		}
		return CUDA_SUCCESS;
	}
	if (!stub_graph_reserve(stub_current()->dev, g->bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (int i = 0; i < g->works; i++) {
		void *params[4] = {&g->work[i].args[0], &g->work[i].args[1], &g->work[i].args[2], &g->work[i].args[3]};
		g->work[i].body(params);
	}
	return launch(&k, NULL, s);
}

/* ---- nodes ---- */

static CUresult add_node(CUgraphNode *n, CUgraph g, int type, CUmemAllocNode a)
{
	struct node *made = calloc(1, sizeof *made);

	*made = (struct node){g, type, a};
	made->graph->nodes++;
	*n = made;
	return CUDA_SUCCESS;
}
API CUresult cuGraphAddEmptyNode(CUgraphNode *n, CUgraph g, const CUgraphNode *d, size_t c) { (void)d, (void)c; return add_node(n, g, CU_GRAPH_NODE_EMPTY, (CUmemAllocNode){0}); }
API CUresult cuGraphAddMemAllocNode(CUgraphNode *n, CUgraph g, const CUgraphNode *d, size_t c, CUmemAllocNode *p)
{
	(void)d, (void)c;
	((struct graph *)g)->bytes += physical(p->bytes);
	p->ptr = (CUdeviceptr)(uintptr_t)host(p->bytes, -1, PROT_READ | PROT_WRITE);
	return add_node(n, g, CU_GRAPH_NODE_MEM_ALLOC, *p);
}
API CUresult cuGraphAddMemFreeNode(CUgraphNode *n, CUgraph g, const CUgraphNode *d, size_t c, CUdeviceptr ptr)
{
	(void)d, (void)c;
	return add_node(n, g, CU_GRAPH_NODE_MEM_FREE, (CUmemAllocNode){.ptr = ptr});
}
API CUresult cuGraphAddNode(CUgraphNode *n, CUgraph g, const CUgraphNode *d, size_t c, CUgraphNodeParams *p)
{
	if (p->type == CU_GRAPH_NODE_CONDITIONAL) {
		for (unsigned i = 0; i < p->conditional.size; i++)
			cuGraphCreate(&p->conditional.bodies[i], 0);
		return add_node(n, g, p->type, (CUmemAllocNode){0});
	}
	return p->type == CU_GRAPH_NODE_MEM_ALLOC ? cuGraphAddMemAllocNode(n, g, d, c, &p->alloc) :
		p->type == CU_GRAPH_NODE_MEM_FREE ? cuGraphAddMemFreeNode(n, g, d, c, p->freed) : add_node(n, g, p->type, (CUmemAllocNode){0});
}
API CUresult cuGraphAddNode_v2(CUgraphNode *n, CUgraph g, const CUgraphNode *d, const void *e, size_t c, CUgraphNodeParams *p) { (void)e; return cuGraphAddNode(n, g, d, c, p); }
/* The memory that a node names is looked at when it is added, and whenever it is changed. */
static int stub_is_memory(CUdeviceptr at)
{
	int found = 0;
	LOCKED(for (struct object *o = objects; o && !found; o = o->next)
		found = (o->kind == IS_PTR || o->kind == IS_ASYNC || o->kind == IS_MAP || o->kind == IS_IPC) && at >= o->key && at < o->key + o->bytes);
	return found;
}
API CUresult cuGraphAddMemsetNode(CUgraphNode *n, CUgraph g, const CUgraphNode *d, size_t c, const void *fill, CUcontext ctx)
{
	(void)d, (void)c, (void)ctx;
	return stub_is_memory(*(const CUdeviceptr *)fill) ? add_node(n, g, 2, (CUmemAllocNode){0}) : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGraphAddMemcpyNode(CUgraphNode *n, CUgraph g, const CUgraphNode *d, size_t c, const void *copy, CUcontext ctx)
{
	const CUcopy3D *p = copy;
	(void)d, (void)c, (void)ctx;
	if ((p->src.type == CU_MEMORY_DEVICE && !stub_is_memory(p->src.device)) || (p->dst.type == CU_MEMORY_DEVICE && !stub_is_memory(p->dst.device)))
		return CUDA_ERROR_INVALID_VALUE;
	return add_node(n, g, 1, (CUmemAllocNode){0});
}
API CUresult cuGraphMemsetNodeSetParams(CUgraphNode n, const void *fill) { (void)n; return stub_is_memory(*(const CUdeviceptr *)fill) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }
API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec x, CUgraphNode n, const void *fill, CUcontext ctx) { (void)x, (void)ctx; return cuGraphMemsetNodeSetParams(n, fill); }
API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode n, const void *copy) { (void)n, (void)copy; return CUDA_SUCCESS; }
API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec x, CUgraphNode n, const void *copy, CUcontext ctx) { (void)x, (void)n, (void)copy, (void)ctx; return CUDA_SUCCESS; }
API CUresult cuGraphNodeSetParams(CUgraphNode n, void *p) { (void)n, (void)p; return CUDA_SUCCESS; }
API CUresult cuGraphExecNodeSetParams(CUgraphExec x, CUgraphNode n, void *p) { (void)x, (void)n, (void)p; return CUDA_SUCCESS; }
API CUresult cuGraphNodeGetType(CUgraphNode n, int *type) { *type = ((struct node *)n)->type; return CUDA_SUCCESS; }
API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode n, CUmemAllocNode *p)
{
	struct node *node = n;
	*p = node->alloc;
	return node->type == CU_GRAPH_NODE_MEM_ALLOC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode n, CUdeviceptr *ptr)
{
	struct node *node = n;
	*ptr = node->alloc.ptr;
	return node->type == CU_GRAPH_NODE_MEM_FREE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
API CUresult cuGraphDestroyNode(CUgraphNode n)
{
	struct node *node = n;
	if (node->type == CU_GRAPH_NODE_MEM_ALLOC || node->type == CU_GRAPH_NODE_MEM_FREE)
		return CUDA_ERROR_NOT_SUPPORTED;
	node->graph->nodes--;
	free(node);
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, int attr, void *v) { (void)attr; *(uint64_t *)v = graph_reserved[dev]; return CUDA_SUCCESS; }
API CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
	stub_give(dev, graph_reserved[dev]);
	graph_reserved[dev] = 0;
	return CUDA_SUCCESS;
}
