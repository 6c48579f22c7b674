// Extends plans by the sums and counts of their averages. Compiled by Spark's own Janino when it is first needed; see average_states.py.

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Cast$;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression;
import org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction;
import org.apache.spark.sql.catalyst.expressions.aggregate.Average;
import org.apache.spark.sql.catalyst.expressions.aggregate.Count;
import org.apache.spark.sql.catalyst.expressions.aggregate.Sum;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType$;
import scala.Option;
import scala.collection.immutable.Seq;

/** Hands the state of averages up, from the aggregate of an analysed plan to its top. */
public class AverageStates {
  private final String sum;
  private final String count;

  /** Both begin the name of a state's column; what follows is the position of its average among the columns of the aggregate. */
  public AverageStates(String beginnings) {
    String[] two = beginnings.split(" ");
    this.sum = two[0];
    this.count = two[1];
  }

  /** The plan with these columns, separated by spaces, behind its own; null if it has no aggregate. */
  public Object extended(LogicalPlan plan, String wanted) {
    return above(plan, wanted.split(" "), new ArrayList());
  }

  /** `more` gets the attributes that were added. */
  private LogicalPlan above(LogicalPlan plan, String[] wanted, List more) {
    if (plan instanceof Aggregate) {
      Aggregate aggregate = (Aggregate) plan;
      List columns = items(aggregate.aggregateExpressions());
      for (int i = 0; i < wanted.length; i++) {
        Alias state = state(columns, wanted[i]);
        columns.add(state);
        more.add(state.toAttribute());
      }
      return aggregate.copy(aggregate.groupingExpressions(), seq(columns), aggregate.child(), aggregate.hint());
    }
    List children = items(plan.children());
    if (children.isEmpty()) return null;
    int last = children.size() - 1; // of WITH, the query is the last: what it names comes before
    LogicalPlan child = above((LogicalPlan) children.get(last), wanted, more);
    if (child == null) return null;
    if (plan instanceof Project) {
      List columns = items(((Project) plan).projectList());
      columns.addAll(more);
      return ((Project) plan).copy(seq(columns), child);
    }
    children.set(last, child);
    return (LogicalPlan) plan.withNewChildren(seq(children));
  }

  private Alias state(List columns, String name) {
    boolean isSum = name.startsWith(this.sum);
    int position = Integer.parseInt(name.substring((isSum ? this.sum : this.count).length()));
    AggregateExpression call = called((Expression) columns.get(position));
    Average average = (Average) call.aggregateFunction();
    AggregateFunction function = isSum ? sumOf(average) : new Count(one(average.child()));
    Expression again =
        call.copy(function, call.mode(), call.isDistinct(), call.filter(), NamedExpression$.MODULE$.newExprId());
    return new Alias(
        again, name, NamedExpression$.MODULE$.newExprId(), seq(new ArrayList()), Option.empty(), seq(new ArrayList()));
  }

  /** A sum that is too large is null for try_avg, and an error for avg, as the average is. */
  private AggregateFunction sumOf(Average average) {
    Expression argument = average.child();
    DataType type = argument.dataType();
    boolean plain = type instanceof DecimalType || type.equals(DoubleType$.MODULE$);
    Expression number = plain ? argument : Cast$.MODULE$.apply(argument, DoubleType$.MODULE$, true);
    Sum sum = new Sum(number);
    return sum.copy(number, sum.evalContext().copy(average.evalMode(), sum.evalContext().allowDecimalPrecisionLoss()));
  }

  /** The aggregate that a column is, below its name. */
  private static AggregateExpression called(Expression column) {
    while (!(column instanceof AggregateExpression)) column = (Expression) column.children().head();
    return (AggregateExpression) column;
  }

  private static List items(Seq seq) {
    List out = new ArrayList();
    for (int i = 0; i < seq.size(); i++) out.add(seq.apply(i));
    return out;
  }

  private static Seq one(Object item) {
    List list = new ArrayList();
    list.add(item);
    return seq(list);
  }

  private static Seq seq(List items) {
    return PythonUtils.toSeq(items);
  }
}
